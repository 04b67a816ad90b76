"""Argument orders of OneFlow 0.1 to 0.4 that differ from 0.5, and how a call is matched to its order.

A call matches the first order in which each argument has the kind of its parameter. The order of 0.5 is tried
first, then the rows of ORDERS from top to bottom. `old=new` names a parameter that 0.5 calls `new`; `old=` is
dropped.
"""

_POOL = {"0.1": "input ksize strides padding data_format name"}
_RAW_DECODER = {"0.1-0.4": "input_blob blob_name shape dtype dim1_varying_length auto_zero_padding name"}
_GPT_READER = {
    "0.4": (
        """data_file_prefix seq_length num_samples batch_size dtype shuffle random_seed split_sizes
        split_index
    parallel_distribution=nd_sbp start_from_saved_progress name"""
    )
}
_XAVIER = {"0.4": "tensor gain data_format"}
_KAIMING = {"0.4": "tensor a mode nonlinearity data_format"}
_VARIABLE = "name shape dtype initializer regularizer trainable model_name random_seed "
_OPTIMIZER_END = "loss_scale_factor grad_clipping train_step_lbn loss_scale_policy"

ORDERS: dict[str, dict[str, str]] = {
    "FixedTensorDef": {"0.1": "shape dtype batch_axis split_axis= name"},
    "argsort": {"0.1-0.2": "input direction name"},
    "concat": {"0.1": "values=inputs axis name"},
    "data.MegatronGPTMMapDataLoader": _GPT_READER,
    "data.OFRecordRawDecoder": _RAW_DECODER,
    "data.coco_reader": {
        "0.1-0.3": (
            "annotation_file image_dir batch_size shuffle random_seed group_by_aspect_ratio stride_partition"
            " name"
        )
    },
    "get_variable": {
        "0.4": _VARIABLE + "parallel_distribution=nd_sbp distribute reuse",
        "0.1-0.3": _VARIABLE + "distribute reuse",
    },
    "global_function": {"0.1": "function_config"},
    "hierarchical_parallel_cast": {
        "0.4": "input parallel_distribution=nd_sbp grad_mode grad_parallel_distribution=grad_nd_sbp name"
    },
    "image.batch_align": {"0.1-0.4": "images shape dtype alignment name"},
    "image.resize": {"0.1": "input_blob=image color_space interp_type resize_shorter resize_x resize_y name"},
    "image.target_resize": {"0.1": "images target_size max_size name"},
    "layers.upsample_2d": {"0.2-0.3": "x size data_format interpolation name"},
    "linalg.matmul": {"0.1-0.3": "a b transpose_a transpose_b name"},
    "math.argmax": {"0.1-0.2": "input name"},
    "math.reduce_max": {"0.1": "input_tensor=x axis keepdims name"},
    "math.top_k": {"0.1-0.2": "input k sorted name"},
    "math.tril": {"0.2": "x diagonal name"},
    "nn.avg_pool2d": _POOL,
    "nn.avg_pool3d": _POOL,
    "nn.conv2d": {"0.1-0.4": "input filters strides padding data_format dilations groups name"},
    "nn.dropout": {"0.1": "x noise_shape seed name rate"},
    "nn.init.kaiming_normal_": _KAIMING,
    "nn.init.kaiming_uniform_": _KAIMING,
    "nn.init.xavier_normal_": _XAVIER,
    "nn.init.xavier_uniform_": _XAVIER,
    "nn.max_pool2d": _POOL,
    "nn.max_pool3d": _POOL,
    "nn.tril": {"0.2": "x diagonal name"},
    "optimizer.LAMB": {"0.3": "lr_scheduler beta1 beta2 epsilon " + _OPTIMIZER_END},
    "optimizer.LARS": {"0.2-0.3": "lr_scheduler momentum_beta epsilon lars_coefficient " + _OPTIMIZER_END},
    "quantization.fake_quantization": {
        "0.3": "input scale zero_point quantization_bit quantization_scheme name"
    },
    "quantization.min_max_observer": {
        "0.3": "input quantization_bit quantization_scheme per_layer_quantization name"
    },
    "quantization.moving_average_min_max_observer": {
        "0.3": "input quantization_bit quantization_scheme momentum name"
    },
    "sort": {"0.1-0.2": "input direction name"},
    "transpose": {"0.1-0.2": "a perm conjugate name"},
}

# the kinds of values of the parameters that distinguish the orders above (None fits every kind)
KINDS = {
    "blob": "bias",
    "bool": (
        """align_corners auto_zero_padding batch_axis_non_change ceil_mode conjugate dynamic_out
        per_layer_quantization
        remove_images_without_annotations reuse shuffle sorted start_from_saved_progress stride_partition
        truncate"""
    ),
    "int": "diagonal k max_size quantization_bit seed max_dim_size resize_shorter resize_x resize_y",
    "number": "alpha fill_value loss_scale_factor momentum rate weight_decay",
    "string": (
        "color_space data_format direction grad_mode interp_type interpolation name quantization_scheme"
        " train_step_lbn"
    ),
    "job type": "type",
    "sequence": "noise_shape perm",
    "int or sequence": "target_size",
    "string or sequence": "weight_decay_includes weight_decay_excludes",
    "axis of the first argument": "axis",
    "at most the target size": "min_size",
    "formula": "quantization_formula",
    "distribution": "distribute",
    "sbp": "nd_sbp grad_nd_sbp",
    "clipping": "grad_clipping",
    "loss scaling": "loss_scale_policy",
    "config": "function_config",
    "generator": "generator",
}

# names of older versions that this package does not have: {why: names}; see the difference legacy-removed
REMOVED = {
    "detection operators that only 0.1 had": (
        """detection.affine_channel detection.anchor_generate detection.box_decode
        detection.box_encode detection.calc_iou_matrix detection.clip_to_image
        detection.extract_piece_slice_id
        detection.identify_non_small_boxes detection.identify_outside_anchors detection.level_map
        detection.maskrcnn_positive_negative_sample detection.maskrcnn_split detection.masks_crop_and_resize
        detection.nms
        detection.pos_neg_sampler detection.roi_align detection.upsample_nearest layers.affine_channel"""
    ),
    "operators on blobs of dynamic shape, and for debugging": (
        """dim0_dynamic_to_fixed experimental.dynamic_binary_concat
        experimental.dynamic_binary_split sleep_identity watch_scope data.BytesListCodec"""
    ),
    "placement of today's API has the name": "placement.current_scope",
    "export of job functions": "onnx.export",
    "methods of modules under several devices": (
        "nn.Module.consistent_forward nn.Module.force_mirrored_forward"
    ),
}
