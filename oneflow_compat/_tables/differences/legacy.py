"""Differences of the job-function API (oneflow.compatible.single_client)."""

_S = "oneflow.compatible.single_client"
_MISC = "tests/legacy/test_legacy_misc.py"

LEGACY = {
    "legacy-one-device": {
        "names": [
            f"{_S}.scope.placement",
            f"{_S}.config.gpu_device_num",
            f"{_S}.env.machine",
            f"{_S}.typing.ListNumpy",
            f"{_S}.distribute",
        ],
        "oneflow": (
            "one process drives several devices and machines; in the mirrored view inputs and results are"
            " lists with one array per device"
        ),
        "here": (
            "one device runs everything: placements, views and distributions are checked and applied on it;"
            " lists have one array; more than one machine or array is an error"
        ),
        "reason": "use global tensors for several devices",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/legacy/test_legacy_job.py::test_list_inputs_may_be_shorter",
    },
    "legacy-list-shape": {
        "names": [f"{_S}.typing.ListNumpy.Placeholder"],
        "oneflow": "blob.shape inside the job is the declared upper bound",
        "here": "it is the shape of the passed array; each new shape is captured once",
        "reason": "programs are compiled per input signature",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/legacy/test_legacy_job.py::test_list_inputs_may_be_shorter",
    },
    "legacy-callback": {
        "names": [f"{_S}.typing.Callback"],
        "oneflow": "the handler is called later, from another thread",
        "here": "the results are already computed; the handler is called immediately, in the caller's thread",
        "reason": "a program is one synchronous call; handlers still run in the order of the calls",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/legacy/test_legacy_job.py::test_return_annotations",
    },
    "legacy-value-shapes": {
        "names": [
            f"{_S}.argwhere",
            f"{_S}.experimental.unique_with_counts",
            f"{_S}.ctc_loss",
            f"{_S}.image.decode",
        ],
        "oneflow": "results whose shape depends on values have dynamic shapes inside the static job",
        "here": "a job with such an operator runs op by op in each call, not as one program",
        "reason": "the program of a job has fixed shapes; nn.Graph supports such operators",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/legacy/test_legacy_array.py::test_value_dependent_operators",
    },
    "legacy-time-shape": {
        "names": [f"{_S}.unpack", f"{_S}.repeat", f"{_S}.pack", f"{_S}.acc"],
        "oneflow": "operators between unpack (or repeat) and pack (or acc) run once per micro batch",
        "here": (
            "pack and acc accept only direct results of unpack and repeat; operators in between are an error"
        ),
        "reason": "a program has no inner time loop",
        "severity": {"oneflow": "breaks", "torch": "superset"},
        "test": "tests/legacy/test_legacy_array.py::test_errors_say_what_is_wrong",
    },
    "legacy-user-ops": {
        "names": [
            f"{_S}.user_op_builder",
            f"{_S}.consistent_user_op_builder",
            f"{_S}.builtin_op",
            "oneflow.builtin_op",
            "oneflow.stateful_op",
        ],
        "oneflow": "builds any of OneFlow's operators by its type name",
        "here": (
            "the common operators, the names of flow.math, and operators of a loaded library"
            " (torch.ops.oneflow)"
        ),
        "reason": "the API has functions for the other operators",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/legacy/test_legacy_array.py::test_errors_say_what_is_wrong",
    },
    "legacy-train-step-lbn": {
        "names": [f"{_S}.optimizer.SGD", f"{_S}.optimizer.Adam"],
        "oneflow": "train_step_lbn: the step number is read from a blob",
        "here": "an error; the job counts its steps itself (saved as System-Train-TrainStep-<job>)",
        "reason": "schedules are computed on the host",
        "severity": {"oneflow": "breaks", "torch": "superset"},
        "test": "tests/legacy/test_legacy_optimizer.py::test_arguments_that_are_refused",
    },
    "legacy-assign-shape": {
        "names": [f"{_S}.system.assign"],
        "oneflow": "validate_shape=False lets a variable change its shape",
        "here": "an error",
        "reason": "programs are compiled for the shapes of their variables",
        "severity": {"oneflow": "breaks", "torch": "superset"},
        "test": "tests/legacy/test_legacy_variables.py::test_assign_takes_effect_when_the_call_ends",
    },
    "legacy-assign-time": {
        "names": [f"{_S}.assign"],
        "oneflow": "the assignment is ordered among the other operators",
        "here": "assignments take effect when the call ends, after gradients and updates",
        "reason": "gradients are computed at the values that forward used",
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": "tests/legacy/test_legacy_variables.py::test_assign_takes_effect_when_the_call_ends",
    },
    "legacy-bbox-flip": {
        "names": [f"{_S}.detection.object_bbox_flip", f"{_S}.detection.object_segmentation_polygon_flip"],
        "oneflow": "flip_code may be a blob",
        "here": "flip_code must be 1 (left-right); a blob is an error",
        "reason": "OneFlow defined no other code for boxes",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/legacy/test_legacy_images.py::test_boxes_and_polygons",
    },
    "legacy-data-readers": {
        "names": [f"{_S}.data.megatron_gpt_mmap_data_loader"],
        "oneflow": "continues a Megatron data set from saved progress",
        "here": "an error that names the alternative",
        "reason": "a job does not record which data it has read",
        "severity": {"oneflow": "breaks", "torch": "superset"},
        "test": "tests/legacy/test_legacy_data.py::test_what_readers_refuse",
    },
    "legacy-tensorrt": {
        "names": [f"{_S}.tensorrt.cache_int8_calibration", f"{_S}.tensorrt.write_int8_calibration"],
        "oneflow": "calibrates TensorRT sub-graphs",
        "here": "an error; use_tensorrt is ignored, the backend is chosen by ONEFLOW_GRAPH_BACKEND",
        "reason": "TensorRT is a backend of the engine",
        "severity": {"oneflow": "breaks", "torch": "superset"},
        "test": f"{_MISC}::test_what_is_refused_names_its_row",
    },
    "legacy-custom-ops": {
        "names": [f"{_S}.experimental.custom_op_module"],
        "oneflow": "builds C++ and Python operators against OneFlow's headers",
        "here": (
            "an error; use torch.library and torch.utils.cpp_extension to build operators, and"
            " config.load_library to load them"
        ),
        "reason": "OneFlow's kernel interface does not exist here",
        "severity": {"oneflow": "breaks", "torch": "superset"},
        "test": f"{_MISC}::test_what_is_refused_names_its_row",
    },
    "legacy-serving-batch": {
        "names": [f"{_S}.serving.InferenceSession.set_job_batch_size"],
        "oneflow": "recompiles the job for another batch size",
        "here": "only the saved batch size runs; another one is an error",
        "reason": "a saved model is a program with static shapes",
        "severity": {"oneflow": "breaks", "torch": "superset"},
        "test": "tests/legacy/test_legacy_files.py::test_saved_model_and_inference_session",
    },
    "legacy-serving-ops": {
        "names": [f"{_S}.serving.InferenceSession.compile", f"{_S}.saved_model.ModelBuilder"],
        "oneflow": "saved models are OneFlow operator lists (protocol buffers)",
        "here": (
            "saved models are torch.export programs with a JSON description and a snapshot; models saved by"
            " OneFlow are an error"
        ),
        "reason": "other software cannot run these operator lists",
        "severity": {"oneflow": "breaks", "torch": "superset"},
        "test": "tests/legacy/test_legacy_files.py::test_saved_model_and_inference_session",
    },
    "legacy-summary-viewer": {
        "names": [f"{_S}.summary.Graph", f"{_S}.summary.Projector"],
        "oneflow": "writes files for OneFlow's viewer",
        "here": "writes JSON; scalars, images, histograms and texts go to a TensorBoard event file",
        "reason": "the viewer no longer exists",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": f"{_MISC}::test_summary_graph_and_projector",
    },
    "legacy-lazy-adam": {
        "names": [f"{_S}.optimizer.LazyAdam", f"{_S}.FunctionConfig.indexed_slices_optimizer_conf"],
        "oneflow": (
            "updates the rows that the sole gather of a variable has read; other variables are updated as a"
            " whole"
        ),
        "here": "updates the rows that a gather has read, and those whose gradient is not all zero",
        "reason": "a variable that is asked for by rows is updated by rows, wherever its gradient comes from",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": (
            "tests/legacy/test_legacy_optimizer.py::"
            "test_lazy_adam_and_indexed_slices_leave_untouched_rows_alone"
        ),
    },
    "legacy-adam-correction": {
        "names": [f"{_S}.optimizer.AdamW", f"{_S}.optimizer.Adam", f"{_S}.optimizer.LazyAdam"],
        "oneflow": (
            "0.4 applies the bias correction to the learning rate, so it also scales the weight decay and"
            " epsilon; 0.5 corrects m and v"
        ),
        "here": (
            "oneflow.optimizer follows 0.4, oneflow.compatible.single_client.optimizer follows 0.5; an"
            " adam_conf in train.model_update_conf follows 0.4"
        ),
        "reason": "the versions disagree; the path shows which version a program was written for",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": (
            "tests/legacy/test_legacy_update_rules.py::"
            "test_the_path_of_an_optimizer_selects_the_rule_of_its_version"
        ),
    },
    "legacy-versions": {
        "names": [f"{_S}.nn.conv2d", f"{_S}.nn.max_pool2d", f"{_S}.math.top_k", f"{_S}.image.target_resize"],
        "oneflow": (
            "argument orders changed between 0.1 and 0.5, and the default layout of nn.* changed between"
            " 0.1 (NHWC) and 0.2 (NCHW)"
        ),
        "here": (
            "the types of the arguments decide which order is used (_tables/legacy/orders.py); if they do"
            " not decide, 0.5's order is used: n in top_k(x, n) is an axis if x has that axis, else k. The"
            " default layout is NCHW"
        ),
        "reason": "a program does not show which version it was written for",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/legacy/test_legacy_signatures.py::test_calls_of_every_version_reach_their_parameters",
    },
    "legacy-removed": {
        "names": [_S],
        "oneflow": ("0.1 to 0.4 had detection operators, ONNX export of jobs, operators on dynamic shapes"),
        "here": "not available; REMOVED in _tables/legacy/orders.py lists them",
        "reason": "version 0.5, whose API this is, had removed them, or they required several devices",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/legacy/test_legacy_signatures.py::test_every_function_is_there_or_listed_as_removed",
    },
    "legacy-integer-losses": {
        "names": [f"{_S}.math.reduce_mean", f"{_S}.nn.L1Loss", f"{_S}.nn.MSELoss"],
        "oneflow": "the mean of an integer blob is its sum times the integer 1 / n, which is 0",
        "here": "the mean, rounded toward zero, in the same dtype; a loss of integers has no gradient",
        "reason": "a mean that is always zero is useless",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/legacy/test_legacy_older.py::test_losses_of_integer_blobs",
    },
}
