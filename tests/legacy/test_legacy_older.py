"""Features of programs of OneFlow 0.2 to 0.5 besides functions: settings, internal modules, edge cases of
jobs.
"""

import importlib
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from legacy_jobs import job_of, result_of_job
from time_limits import seconds

import oneflow
import oneflow.compatible.single_client as flow

X = np.arange(24, dtype=np.float32).reshape(2, 4, 3)


def sgd():
    return flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.5]), momentum=0)


def weight(name="w", shape=(3,), dtype=flow.float):
    return flow.get_variable(name, shape, dtype, flow.ones_initializer(dtype))


@pytest.mark.parametrize("axis", [1, 2], ids=["named", "as in BERT"])
def test_gather_with_batch_dimensions_gathers_the_last_one_of_the_indices(axis):
    """BERT's pretraining passes axis=2, batch_dims=2 for positions of shape (batch, n); 0.9.0 gathers
    dimension 1 too.
    """
    positions = np.array([[1, 0], [3, 3]], np.int32)
    result = result_of_job(lambda x, i: flow.gather(x, i, axis=axis, batch_dims=axis), X, positions)
    np.testing.assert_array_equal(result, [[[3, 4, 5], [0, 1, 2]], [[21, 22, 23], [21, 22, 23]]])


def test_gather_with_batch_dimensions_before_the_axis():
    indices = np.array([[2, 0], [1, 1]], np.int32)
    result = result_of_job(lambda x, i: flow.gather(x, i, axis=2, batch_dims=1), X, indices)
    np.testing.assert_array_equal(result, np.stack([X[b][:, indices[b]] for b in range(2)]))


@pytest.mark.parametrize("losses", [1, 2])
def test_an_empty_loss_changes_nothing(losses):
    def body(x, y):
        w = weight()
        sgd().minimize([w * x, w * y][:losses])

    job = job_of(body, [np.zeros((0, 3), np.float32), np.ones((2, 3), np.float32)], "train")
    job(np.zeros((0, 3), np.float32), np.ones((2, 3), np.float32))
    value = flow.get_all_variables()["w"].numpy()
    np.testing.assert_allclose(value, 1.0 if losses == 1 else 1 - 0.5 * 2 / 6, rtol=1e-6)


def test_minimize_in_a_predict_job_trains():
    def body(x):
        w = weight()
        y = flow.nn.dropout(w * x, rate=0.9)  # a predict job drops nothing
        sgd().minimize(y)
        return y

    job = job_of(body, [np.ones(3, np.float32)])
    values = [job(np.ones(3, np.float32))[0] for _ in range(3)]
    np.testing.assert_allclose(values, [1, 1 - 0.5 / 3, 1 - 1 / 3], rtol=1e-6)


def test_losses_of_integer_blobs():
    a, b = np.array([1, 5, 9], np.int32), np.array([2, 2, 2], np.int32)
    absolute, squared, mean = result_of_job(
        lambda x, y: (
            flow.nn.L1Loss(x, y),
            flow.nn.MSELoss(x, y, reduction="sum"),
            flow.math.reduce_mean(x - y),
        ),
        a,
        b,
    )
    assert (absolute.dtype, absolute, squared, mean) == (np.int32, 11 // 3, 59, 3)

    def body(x):
        w = weight()
        sgd().minimize([w * flow.cast(x, flow.float), flow.math.reduce_sum(x)])

    job_of(body, [a], "train")(a)
    np.testing.assert_allclose(flow.get_all_variables()["w"].numpy(), 1 - 0.5 * a / 3, rtol=1e-6)


def test_a_job_with_nothing_but_integer_losses_keeps_its_variables():
    def body(x):
        weight()
        sgd().minimize(flow.math.reduce_sum(x))

    job_of(body, [np.ones(3, np.int32)], "train")(np.ones(3, np.int32))
    np.testing.assert_array_equal(flow.get_all_variables()["w"].numpy(), np.ones(3))


@pytest.mark.parametrize("eager", [False, True], ids=["captured", "op by op"])
@pytest.mark.parametrize("size, values", [(1, [1, 2, 3, 4, 5]), (2, [1, 1, 2, 3, 4]), (4, [1, 1, 1, 1, 2])])
def test_ssp_variable_proxy_computes_with_an_older_value(size, values, eager):
    flow.enable_eager_execution(eager)

    def body():
        reference, value = flow.experimental.ssp_variable_proxy(weight(), size)
        flow.assign(reference, reference + 1.0)
        return value

    job = job_of(body, [])
    assert [job()[0] for _ in values] == values
    flow.load_variables({"w": np.full(3, 10, np.float32)})
    assert [job()[0] for _ in range(size + 1)] == [10] * size + [11]


def test_the_updates_of_an_older_value_are_as_old():
    """What is assigned from the old value comes back after `buffer_size` calls."""

    def body():
        reference, value = flow.experimental.ssp_variable_proxy(weight(), 3)
        flow.assign(reference, value + 1.0)
        return value

    job = job_of(body, [])
    assert [job()[0] for _ in range(7)] == [1, 1, 1, 2, 2, 2, 3]


def test_ssp_trains_a_variable_by_the_gradient_at_its_older_value():
    config = flow.function_config()
    config.enable_ssp(True)

    def body():
        with flow.experimental.scope.config(ssp_num_stages=4, ssp_stage_id=1):
            w, again = weight(), weight()
        fixed = flow.get_variable("f", (3,), initializer=flow.ones_initializer(), trainable=False)
        sgd().minimize(flow.math.reduce_sum(w * w + again * 0 + fixed))
        return w

    w, expected = [1.0], []
    for step in range(6):
        old = w[max(step - 2, 0)]
        expected.append(old)
        w.append(w[-1] - 0.5 * 2 * old)
    job = job_of(body, [], "train", config)
    assert [job()[0] for _ in range(6)] == expected
    assert flow.get_all_variables()["w"].numpy().tolist() == [w[-1]] * 3
    assert set(flow.get_all_variables()) == {"w", "f", "System-Train-TrainStep-job"}


@pytest.mark.parametrize("stage", [-1, 4])
def test_a_stage_that_the_pipeline_does_not_have_is_refused(stage):
    config = flow.function_config()
    config.enable_ssp(True)

    def body():
        with flow.experimental.scope.config(ssp_num_stages=4, ssp_stage_id=stage):
            sgd().minimize(flow.math.reduce_sum(weight()))

    with pytest.raises(ValueError, match=f"ssp_stage_id={stage} and ssp_num_stages=4"):
        job_of(body, [], "train", config)()


def test_ssp_variable_proxy_refuses_what_is_no_variable():
    with pytest.raises(ValueError, match="what flow.get_variable returned"):
        job_of(lambda x: flow.experimental.ssp_variable_proxy(x, 2)[1], [X])(X)
    with pytest.raises(ValueError, match="at least 1, found 0"):
        job_of(lambda x: flow.experimental.ssp_variable_proxy(weight(), 0)[1], [X])(X)


def test_function_description_tells_the_settings():
    config = flow.function_config()
    assert not config.function_desc.IsTrainable() and not config.function_desc.HasAttr("default_data_type")
    config.default_data_type(flow.float16)
    config.train.primary_lr(0.1)
    assert config.function_desc.IsTrainable() and config.function_desc.default_data_type is torch.float16
    with pytest.raises(AttributeError, match="no setting 'enable_inplace'"):
        config.function_desc.enable_inplace


def test_a_named_module_counts_its_calls():
    class Scale(flow.deprecated.nn.Module):
        def forward(self, x):
            return x * flow.get_variable(
                f"{self.module_name}-scale", (1,), initializer=flow.constant_initializer(3.0), reuse=True
            )

    scale = Scale("net")
    np.testing.assert_array_equal(result_of_job(lambda x: scale(scale(x)), X), X * 9)
    assert (
        scale.call_seq_no == 2
        and flow.deprecated.nn.Module().module_name != flow.deprecated.nn.Module().module_name
    )
    with pytest.raises(NotImplementedError, match="no forward"):
        flow.deprecated.nn.Module()(X)


def test_settings_and_names_up_to_0_4():
    flow.config.persistence_buf_byte(1 << 20)
    flow.config.save_downloaded_file_to_local_fs()
    assert flow.summary.Hparam is flow.summary.HParam
    assert flow.Size([1, 2, 1]).index(1, 1) == 2
    flow.deprecated.init_worker(scp_binary=True, use_uuid=False)
    flow.deprecated.delete_worker()
    assert flow.is_deprecated(flow.deprecated.init_worker) and not flow.is_deprecated(flow.reshape)
    np.testing.assert_array_equal(
        result_of_job(lambda x: flow.local_gather(flow.copy(x), flow.range(2), 1), X), X[:, :2]
    )
    with flow.eager_fixed_placement("cpu", "0:0"):
        pass


@pytest.mark.parametrize(
    "path, name, home",
    [
        ("ops.layers", "conv2d", "layers.conv2d"),
        ("ops.optimizer", "AdamW", "optimizer.up_to_0_4.AdamW"),
        ("ops.math_ops", "relu", "math.relu"),
        ("framework.distribute", "split", "distribute.split"),
        ("framework.function_util", "FunctionConfig", "FunctionConfig"),
        ("ops.array_ops", "reshape", "reshape"),
        ("framework.typing", "Numpy", "typing.Numpy"),
        ("framework.dtype", "float32", "float32"),
        ("framework.config_util", "cpu_device_num", "config.cpu_device_num"),
        ("framework.scope_util", "mirrored_view_enabled", "scope.mirrored_view_enabled"),
    ],
)
def test_modules_of_oneflow_python_have_the_names_of_the_api(path, name, home):
    module = importlib.import_module(f"oneflow.python.{path}")
    value = flow
    for part in home.split("."):
        value = getattr(value, part)
    assert getattr(module, name) is value
    with pytest.raises(AttributeError, match="not a name of OneFlow's job-function API"):
        module.no_such_name


def test_oneflow_python_can_be_the_first_import():
    script = """
import oneflow.python.framework.config_util, oneflow.python.oneflow_export
from oneflow.python.ops.nn_ops import conv2d
from oneflow.python.oneflow_export import oneflow_export
from oneflow.python.framework import id_util
assert id_util.UniqueStr("Conv_") != id_util.UniqueStr("Conv_")
import oneflow.python as python
assert oneflow_export("a.b")(conv2d) is conv2d and python.reshape
try:
    from oneflow.python.ops.nn_ops import no_such_name
except ImportError:
    print("done")
"""
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=seconds(120)
    )
    assert result.stdout.strip() == "done", result.stderr
    assert oneflow.reshape is not None


def test_names_of_keras():
    """0.1 had them; its BERT and its CNNs call them."""
    import oneflow.keras.activations as activations
    from oneflow.keras.maths import add

    assert flow.keras.activations is activations
    x = torch.tensor([-1.0, 2.0])
    assert torch.equal(activations.relu(x), torch.relu(x))
    assert torch.equal(activations.gelu(x), flow.math.gelu(x)) and torch.equal(add(x, 1), x + 1)
    assert torch.equal(activations.tanh_grad(x.tanh(), x), flow.math.tanh_grad(x.tanh(), x))
    with pytest.raises(ValueError, match=r"0\.5"):
        activations.relu(x, 0.5)


class AddsTwo(flow.deprecated.nn.Module):
    """A module around the builder of an operator, as in tests of 0.5."""

    def __init__(self):
        super().__init__()
        self.builder = flow.consistent_user_op_module_builder("add_n").InputSize("in", 2).Output("out")
        self.builder.user_op_module.InitOpKernel()

    def forward(self, x, y):
        built = self.builder.OpName(f"Add_{self.call_seq_no}").Input("in", [x, y]).Build()
        return built.InferAndTryRun().RemoteBlobList()[0]


def test_a_module_that_holds_the_builder_of_its_operator():
    def job(x):
        adder = flow.find_or_create_module("AddsTwo", AddsTwo)
        return adder(adder(x, x), x)

    x = np.arange(4, dtype=np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the module's builder keeps no blob of a job
        assert np.array_equal(result_of_job(job, x), 3 * x)


def test_the_result_of_an_operator_has_the_name_of_its_operator():
    names = {}

    def job(x):
        with flow.scope.namespace("outer"):
            adder = flow.find_or_create_module("AddsTwo", AddsTwo)
            names["module"] = [adder(x, x).op_name, adder(x, x).logical_blob_name]
            relu = flow.user_op_builder("r").Op("relu").Input("in", [x]).Output("out").Build()
            blob = relu.InferAndTryRun().SoleOutputBlob()
            names["builder"] = [relu.op_name, blob.op_name]
        parts = flow.user_op_builder("s").Op("split_like").Input("in", [x]).Input("like", [x[:1], x[1:]])
        parts = parts.Output("parts", 2).Build().InferAndTryRun().RemoteBlobList()
        names["two outputs"] = [part.logical_blob_name for part in parts]
        same = flow.user_op_builder("i").Op("identity").Input("in", [x]).Output("out").Build()
        names["identity"] = [same.InferAndTryRun().SoleOutputBlob().op_name, x.op_name]
        called = flow.user_op_builder("c").Op("add_n").InputSize("in", 2).Output("out").Build()
        names["called"] = [called(x, x).op_name]
        return blob

    assert np.array_equal(result_of_job(job, np.array([-1, 2], np.float32)), [0, 2])
    assert names == {
        "module": ["outer-Add_0", "outer-Add_1/out_0"],
        "builder": ["r", "outer-r"],
        "two outputs": ["s/parts_0", "s/parts_1"],
        "identity": ["i", "Input_0"],
        "called": ["c"],
    }
