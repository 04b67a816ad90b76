"""Differences of the operators of `oneflow._C` and csrc/."""

OPS = {
    "ops-dropout-random": {
        "names": [
            "oneflow._C.fused_bias_add_dropout",
            "oneflow._C.fused_scale_mask_softmax_dropout",
            "oneflow._C.fused_scale_tril_softmax_mask_scale",
            "oneflow._C.fused_bias_add_scale_mask_softmax_dropout",
        ],
        "oneflow": "masks come from OneFlow's CUDA generator",
        "here": (
            "masks come from torch's generator: one sample seeds a Philox stream (kernels), or torch's"
            " dropout is used (without the kernel library); all three give different masks"
        ),
        "reason": (
            "random streams are not part of the meaning; torch.manual_seed and a generator argument repeat"
            " the mask"
        ),
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": "tests/ops/test_ops_kernels.py::test_bias_dropout_keeps_and_scales_its_share",
    },
    "ops-deform-conv2d-gradient": {
        "names": ["oneflow.nn.functional.deform_conv2d", "oneflow._C.deform_conv2d"],
        "oneflow": (
            "0.9.0's CPU gradients of the input and of the weight are not the derivatives of the output"
        ),
        "here": "the derivatives",
        "reason": "a defect of OneFlow 0.9.0; the values agree",
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": "tests/ops/test_ops_kernels.py::test_gradients_agree_with_differences",
    },
    "ops-zero-point": {
        "names": [
            "oneflow.nn.FakeQuantization",
            "oneflow.nn.Quantization",
            "oneflow._C.fake_quantization",
            "oneflow._C.quantization",
        ],
        "oneflow": (
            "in the affine scheme a negative zero point (a range above 0) is wrapped into an unsigned byte"
        ),
        "here": "the zero point is used unchanged",
        "reason": "a defect of OneFlow 0.9.0: its own observer gives such zero points",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/ops/test_ops_meaning.py::test_negative_zero_points_are_kept",
    },
    "ops-softmax-cross-entropy-gradient": {
        "names": ["oneflow._C.softmax_cross_entropy"],
        "oneflow": "the gradient is softmax - label, which is correct for labels that sum to 1",
        "here": "the derivative, whatever the sum of the labels",
        "reason": "both agree for probabilities; otherwise OneFlow's value is not the derivative",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/ops/test_ops_meaning.py::test_softmax_cross_entropy_gradient_is_the_derivative",
    },
    "ops-unique-order": {
        "names": ["oneflow._C.one_embedding_unique_key_value_pair", "oneflow._C.one_embedding_id_shuffle"],
        "oneflow": "unique ids in the order of a GPU hash table",
        "here": "in order of first occurrence (kernel), or ascending (plain torch)",
        "reason": "the order is not specified; the inverse indices map ids to positions",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/ops/test_ops_kernels.py::test_unique_key_value_pair",
    },
    "ops-roc-auc-ties": {
        "names": ["oneflow.roc_auc_score", "oneflow._C.roc_auc_score"],
        "oneflow": "with several groups of equal scores the area is wrong",
        "here": "a pair of equal scores counts half",
        "reason": "a defect of OneFlow 0.9.0: it gives 0.345, but counting the pairs gives 0.405",
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": "tests/ops/test_ops_meaning.py::test_roc_auc_counts_pairs",
    },
    "ops-one-embedding-store": {
        "names": [
            "oneflow._C.one_embedding_lookup",
            "oneflow._C.one_embedding_fused_lookup",
            "oneflow._C.one_embedding_embedding_put",
        ],
        "oneflow": (
            "embedding_name selects a store that a handler opened; embedding_tables, state_initializer and"
            " seed initialize new rows"
        ),
        "here": (
            "it selects an existing one_embedding of that name; the tables, optimizer and seed of the"
            " embedding initialize new rows"
        ),
        "reason": "a store belongs to its embedding here",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/ops/test_ops_embedding.py::test_lookup_and_put",
    },
    "ops-one-embedding-shuffle": {
        "names": [
            "oneflow._C.one_embedding_id_shuffle",
            "oneflow._C.one_embedding_embedding_shuffle",
            "oneflow._C.one_embedding_embedding_gradient_shuffle",
        ],
        "oneflow": "ids are partitioned over ranks",
        "here": "one rank; more raise NotImplementedError",
        "reason": "the exchange between ranks is not implemented",
        "severity": {"oneflow": "breaks", "torch": "superset"},
        "test": "tests/ops/test_ops_meaning.py::test_shuffles_gather_and_scatter_back",
    },
}
