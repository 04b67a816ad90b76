"""`oneflow._C`: module of ours -> names, as in functions.py.

Every other name of _C comes from oneflow or torch (see `_C`).
"""

C_OPS = {
    "comm.global_operators": (
        "global_arange global_constant global_empty global_tensor_constant local_all_reduce local_reduce"
        " local_all_gather local_reduce_scatter comm_broadcast"
    ),
    "_ops.shape": "broadcast_dim_like",
    "_ops.math": "less=lt less_equal=le",
    "_oneflow_internal.jobs": "dispatch_feed_input dispatch_feed_variable dispatch_fetch_output",
    "_data.c_operators": "image_flip tensor_buffer_to_tensor",
    "_ops.nn.norm": (
        "batch_norm_backward_elemt batch_norm_backward_reduce batch_norm_elemt batch_norm_stats"
    ),
    "_ops.c_arguments": (
        "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d max_pool1d max_pool2d max_pool3d"
        " argwhere bernoulli_ broadcast_shapes broadcast_tensors depend einsum embedding embedding_renorm_"
        " expand exponential_ fft fill_ grid_sample hfft ifft ihfft irfft rfft meshgrid nonzero norm"
        " scaled_dot_product_attention scatter tensordot to_global to_local unique upsample view"
    ),
    "_kernels.activation": (
        "bias_add fast_gelu fused_bias_add_dropout fused_bias_add_gelu fused_fast_gelu_mul"
        " gelu_with_approximate"
    ),
    "_kernels.softmax": (
        "fused_bias_add_scale_mask_softmax_dropout fused_scale_mask_bias_softmax fused_scale_mask_softmax"
        " fused_scale_mask_softmax_dropout fused_scale_tril fused_scale_tril_softmax_mask_scale"
        " fused_scale_tril_softmax_dropout=fused_scale_tril_softmax_mask_scale"
    ),
    "_kernels.norm": (
        "group_norm layer_norm layer_norm_affine normalization normalization_add_relu rms_layer_norm rms_norm"
        " skip_layer_norm skip_rms_norm sqrt_square_sum"
    ),
    "_kernels.matmul": (
        "batch_matmul fused_glu fused_matmul_bias fused_matmul_bias_add_relu_dropout fused_mlp"
        " fused_weighted_sum grouped_matmul grouped_matmul_bias matrix_vector_product"
        " cublas_fused_mlp=fused_mlp"
    ),
    "_kernels.attention": (
        "fused_attention_concat_past_key_value fused_codegeex_qkv_reshape"
        " fused_multi_head_attention_inference fused_multi_head_attention_inference_v2 fused_self_attention"
        " fused_self_attention_query_mul_key_and_value=fused_self_attention"
    ),
    "_kernels.rotary": "fused_apply_rotary_emb",
    "_kernels.boxes": (
        "fused_get_boundding_boxes_coord fused_get_center_dist fused_get_ciou_diagonal_angle"
        " fused_get_ciou_result fused_get_convex_diagonal_squared fused_get_intersection_area fused_get_iou"
    ),
    "_kernels.recommender": "fused_cross_feature_interaction fused_dot_feature_interaction",
    "_kernels.embedding": (
        "one_embedding_adagrad_update one_embedding_adam_update one_embedding_embedding_gradient_shuffle"
        " one_embedding_embedding_shuffle one_embedding_ftrl_update one_embedding_id_shuffle"
        " one_embedding_sgd_update one_embedding_unique_key_value_pair"
    ),
    "one_embedding.functional": (
        "one_embedding_embedding_put one_embedding_fused_lookup one_embedding_fused_lookup_grad"
        " one_embedding_lookup"
    ),
    "_kernels.quantization": (
        "fake_quantization fused_linear_with_groupwise_quantized_weight groupwise_dequantize min_max_observer"
        " moving_average_min_max_observer quantization"
    ),
    "_kernels.losses": (
        "binary_cross_entropy_loss binary_cross_entropy_with_logits_loss"
        " binary_cross_entropy_with_logits_loss_grad combined_margin_loss ctc_greedy_decoder ctc_loss"
        " distributed_sparse_cross_entropy kl_div_loss nll_loss smooth_l1_loss softmax_cross_entropy"
        " softmax_cross_entropy_grad sparse_cross_entropy sparse_softmax_cross_entropy"
    ),
    "_kernels.optimizer_updates": (
        "fused_clip_grad multi_tensor_adam_update multi_tensor_momentum_update multi_tensor_sgd_update"
        " multi_tensor_yolov5_weight_update"
    ),
    "_kernels.detection": "deform_conv2d=raw_deform_conv2d nms=nms_mask roi_align",
    "_kernels.indexing": (
        "arg_sort dim_gather gather one_hot scatternd scatterndlike slice slice_update"
        " slice_view_1d_contiguous tensor_scatter_nd_update tensor_setitem unsorted_segment_sum"
        " unsorted_segment_sum_like"
    ),
    "_kernels.raw": (
        "add amp_black_identity amp_white_identity assign_local_tensor avg_pool2d_nhwc broadcast_equal"
        " constant contiguous_ copy cosh_grad deconv1d deconv2d deconv3d"
        " host_scalar_add_by_tensor identity linalg_cross noncontiguous_binary_op"
        " pack_padded_sequence pixel_shuffle reciprocal_no_nan reshape_like select_top_n"
        " sigmoid_grad split_like stream_touch tan_grad tanh_grad tensor_constant throw_error to"
        " trunc_divide unfold_tensor upsample_bicubic_2d upsample_bilinear_2d"
        " upsample_linear_1d upsample_nearest_1d upsample_nearest_2d upsample_nearest_3d"
        " upsample_trilinear_3d"
    ),
    "_kernels.reductions": (
        "reduce_all reduce_any reduce_max reduce_max_device_stage reduce_max_global_stage reduce_mean"
        " reduce_min reduce_min_device_stage reduce_min_global_stage reduce_prod reduce_sum"
        " reduce_sum_like"
    ),
}
