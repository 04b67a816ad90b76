"""Settings, flow.Model, unittest helpers and other functions."""

import json
import os
import unittest

import numpy as np
import pytest
import torch
from legacy_jobs import job_of

import oneflow.compatible.single_client as flow
from oneflow._tables.legacy import config as legacy_config

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def call(function, row):
    """Call a setting with its default, or with 1."""
    return function() if row[0] is not legacy_config.REQUIRED else function(1)


def test_every_setting_says_whether_it_is_honoured():
    for table in (
        legacy_config.FUNCTION_CONFIG,
        legacy_config.RESOURCE,
        legacy_config.COLLECTIVE_BOXING,
        legacy_config.ENV,
    ):
        for name, (_, state, why) in table.items():
            assert state in ("honoured", "ignored") and len(why) > 5, name


@pytest.mark.parametrize("name", legacy_config.FUNCTION_CONFIG)
def test_function_config_records(name):
    config = flow.function_config()
    target = config
    for part in name.split("."):
        target = getattr(target, part)
    call(target, legacy_config.FUNCTION_CONFIG[name])
    if legacy_config.FUNCTION_CONFIG[name][0] is not None and not name.endswith(".has"):
        assert name in config.values
    with pytest.raises(TypeError):
        target(1, 2)
    assert legacy_config.FUNCTION_CONFIG[name][2] in target.__doc__


def test_white_list_and_the_rest_of_function_config():
    config = flow.ExecutionConfig()
    config.static_mem_alloc_policy_white_list.add("a")
    assert config.static_mem_alloc_policy_white_list.has(
        "a"
    ) and not config.static_mem_alloc_policy_white_list.has("b")
    config.exp_run_conf()
    with pytest.raises(AttributeError):
        config.no_such_setting(1)


def test_settings_the_engine_gets():
    config = flow.function_config()
    config.enable_fuse_add_to_output(True)
    config.enable_fuse_cast_scale()
    flow.config.enable_debug_mode(True)
    options = config.engine_config()
    assert options.fuse_add_to_output and options.fuse_cast_scale and options.check
    assert (job_of(lambda x: x * 2, [X], config=config)(X) == 2 * X).all()


def test_resource_settings(tmp_path):
    before = torch.backends.cuda.matmul.allow_tf32
    for name, row in legacy_config.RESOURCE.items():
        if not name.startswith("load_library"):
            call(getattr(flow.config, name), row)
    torch.backends.cuda.matmul.allow_tf32 = before
    for name, row in legacy_config.COLLECTIVE_BOXING.items():
        call(getattr(flow.config.collective_boxing, name), row)
    for name, row in legacy_config.ENV.items():
        call(getattr(flow.env, name), row)
    resource = flow.env.current_resource()
    assert (
        resource["gpu_device_num"] == 1
        and resource["collective_boxing.nccl_num_streams"] == 1
        and resource["env.ctrl_port"] == 1
    )
    assert flow.config.legacy_model_io_enabled() is True and flow.current_resource() == resource
    with pytest.raises(OSError):
        flow.config.load_library(str(tmp_path / "none.so"))
    with pytest.raises(OSError):
        flow.config.load_library_now(str(tmp_path / "none.so"))
    assert flow.env.init() is True and flow.current_machine_id() == 0
    flow.env.machine([{"addr": "127.0.0.1"}])
    flow.env.init_bootstrap_confs("127.0.0.1")
    with pytest.raises(NotImplementedError, match="legacy-one-device"):
        flow.env.machine("10.0.0.1", "10.0.0.2")


def test_distribute():
    d = flow.distribute
    assert (
        d.split(1).axis == 1
        and d.split(0) != d.broadcast()
        and d.auto().strategy == "auto"
        and d.split(1) == d.split(1)
    )
    for good in (d.split(0), d.auto(), None, False):
        d.assert_is_valid_distribute(good)
    with pytest.raises(TypeError, match="a distribution is what"):
        d.assert_is_valid_distribute("split")
    with pytest.raises(TypeError):
        d.split("0")
    with d.mirrored_strategy():
        assert d.mirrored_strategy_enabled() and not d.consistent_strategy_enabled()
    with flow.scope.mirrored_view(), flow.scope.consistent_view():
        assert flow.scope.consistent_view_enabled()


def test_what_is_refused_names_its_row():
    module = flow.experimental.custom_op_module("m")
    for function in (
        module.py_api,
        module.cpp_def,
        module.py_kernel,
        module.cpp_kernel,
        module.gpu_kernel,
        module.build_load,
    ):
        with pytest.raises(NotImplementedError, match="legacy-custom-ops"):
            function()
    for function in (flow.tensorrt.cache_int8_calibration, lambda: flow.tensorrt.write_int8_calibration("p")):
        with pytest.raises(NotImplementedError, match="legacy-tensorrt"):
            function()


def test_interface_blobs_and_job_set():
    job_of(lambda x: x * flow.get_variable("w", shape=(1,), initializer=flow.ones_initializer()), [X])
    e = flow.experimental
    assert e.get_interface_blob_value("w").numpy().tolist() == [1]
    e.set_interface_blob_value("w", np.array([5], np.float32))
    assert e.interface_op_read_and_write.GetInterfaceBlobValue("w").numpy().tolist() == [5]
    e.interface_op_read_and_write.FeedValueToInterfaceBlobObject(
        e.interface_op_read_and_write.GetEagerInterfaceBlob("w"), np.array([6], np.float32)
    )
    assert flow.get_all_variables()["w"].numpy().tolist() == [6]
    e.interface_op_read_and_write.sync_default_session_if_normal()
    assert e.get_job_set() == {"job": [{"name": "job", "type": "predict", "inputs": ["x0"]}]}
    with pytest.raises(KeyError, match="no variable 'v'"):
        e.get_interface_blob_value("v")
    e.enable_typing_check(True)
    e.typing_check.enable_typing_check(False)


def test_experimental_assignments_and_proxies():
    def body(x):
        w = flow.get_variable("w", shape=(2, 3), initializer=flow.zeros_initializer())
        ref, value = flow.experimental.ssp_variable_proxy(w, buffer_size=2)
        flow.experimental.logical_slice_assign(ref, x[:1], [(1, 2, 1)])
        return value

    job_of(body, [X])(X)
    assert flow.get_all_variables()["w"].numpy().tolist() == [[0, 0, 0], X[0].tolist()]

    def whole(x):
        flow.experimental.eager_assign_121(flow.get_variable("w", shape=(2, 3)), x)

    job_of(whole, [X], name="whole")(X)
    assert (flow.get_all_variables()["w"].numpy() == X).all()
    scope = flow.experimental.namescope
    scope.name_scope_stack_push("p")
    op = type("Op", (), {"name": "x"})()
    scope.PrependOpNamePrefixIfNeed(op)
    scope.name_scope_stack_pop()
    assert op.name == "p-x" and scope.GetJobNameScopePrefix("j") == ""


def test_model_fit(tmp_path):
    data_w = np.array([[1.0], [-2.0], [0.5]], np.float32)

    class Data(flow.model.NumpyDataModule):
        def forward(self, step_idx=0, optimizer_idx=0):
            x = np.random.default_rng(step_idx).normal(size=(8, 3)).astype(np.float32)
            return x, x @ data_w

    class Line(flow.Model):
        def forward(self, x):
            return flow.layers.dense(x, 1, use_bias=False, name="line")

        def training_step(self, batch, optimizer_idx):
            x, y = batch
            return flow.math.reduce_mean(flow.math.squared_difference(self(x), y))

        def validation_step(self, batch):
            return self(batch[0]) - batch[1]

        def configure_optimizers(self):
            return flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1]), momentum=0)

    class Keep(flow.model.Callback):
        losses, errors = [], []

        def on_training_step_end(self, outputs, step_idx=0, optimizer_idx=0):
            self.losses.append(float(outputs))

        def on_validation_step_end(self, outputs, step_idx=0):
            self.errors.append(abs(outputs).max())

    train, val, check = (
        flow.model.TrainingConfig(),
        flow.model.ValidationConfig(),
        flow.model.CheckpointConfig(),
    )
    assert not train.check_valid() and not check.check_valid()
    for config in (train, val):
        config.config_execution(flow.ExecutionConfig())
        config.config_data(Data())
    val.config_step_interval(20)
    check.config_save(str(tmp_path / "snap"), step_interval=30)
    model = Line()
    assert model.method_overrided("forward") and train.check_valid() and check.check_valid()
    model.fit(train, val, check, [Keep()], max_steps=60)
    assert Keep.losses[-1] < 1e-3 * Keep.losses[0] and len(Keep.errors) == 3 and Keep.errors[2] < 0.2
    assert sorted(os.listdir(tmp_path)) == ["snap-0", "snap-30"]
    flow.clear_default_session()
    again = flow.model.CheckpointConfig()
    again.config_load(str(tmp_path / "snap-30"))
    model.fit(None, val, again, Keep(), max_steps=1)
    assert Keep.errors[3] < 2 * Keep.errors[0] and not np.allclose(
        flow.get_all_variables()["line-weight"].numpy(), 0
    )
    with pytest.raises(NotImplementedError, match="must define training_step"):
        flow.Model().training_step()
    with pytest.raises(TypeError, match="tuple of arrays"):
        Data().infer_oneflow_data_placeholder([1])


def test_summary_graph_and_projector(tmp_path):
    job_of(lambda x: x * flow.get_variable("w", shape=(1,), initializer=flow.ones_initializer()), [X])
    graph = flow.summary.Graph(str(tmp_path))
    graph.write_structure_graph()
    written = json.load(open(graph.structure_graph_filename))
    assert written["variables"] == {"w": {"shape": [1], "dtype": "float32"}} and graph.logdir == str(tmp_path)
    projector = flow.summary.Projector(str(tmp_path))
    with pytest.raises(RuntimeError, match="create_embedding_projector"):
        projector.embedding_projector(value=X, tag="t", step=1)
    projector.create_embedding_projector()
    projector.embedding_projector(
        value=X,
        label=np.array([1, 2]),
        tag="t",
        step=1,
        sample_name="s",
        sample_type="image",
        x=np.zeros((2, 2)),
    )
    projector.create_exception_projector()
    projector.exception_projector(value=X, tag="e", step=2)
    line = json.loads(open(projector.embedding_filename).read())
    assert (
        line["tag"] == "t"
        and line["value"]["content"] == X.reshape(-1).tolist()
        and line["sample"]["type"] == "image"
        and line["label"]["shape"] == [2]
    )
    assert json.loads(open(projector.exception_filename).read())["step"] == 2
    with pytest.raises(ValueError, match="sample_type"):
        projector.embedding_projector(value=X, tag="t", step=1, sample_name="s", sample_type="smell", x=X)


def test_unittest_helpers(tmp_path, monkeypatch):
    class Case(flow.unittest.TestCase):
        def test_it(self):
            assert flow.get_all_variables() == {}

    variable = job_of(lambda: flow.get_variable("w", shape=(1,)), [])
    variable()
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Case).run(result)
    assert result.wasSuccessful() and result.testsRun == 1
    env = flow.unittest.env
    assert (
        env.device_num() >= 1
        and env.node_size() == 1
        and env.has_world_size() in (True, False)
        and isinstance(env.typing_check_enabled(), bool)
    )
    assert isinstance(env.has_node_list(), bool)
    for decorator in (
        "skip_unless_1n1d",
        "skip_unless_1n2d",
        "skip_unless_1n4d",
        "skip_unless_2n1d",
        "skip_unless_2n2d",
        "skip_unless_2n4d",
    ):
        assert callable(getattr(flow.unittest, decorator)())
    assert callable(flow.unittest.num_nodes_required(1))
    (tmp_path / "test_legacy_registered.py").write_text(
        "import unittest\nclass Mine(unittest.TestCase):\n    def test_a(self): self.assertTrue(True)\n"
    )
    scope = {}
    monkeypatch.syspath_prepend(str(tmp_path))
    flow.unittest.register_test_cases(
        scope=scope,
        directory=str(tmp_path),
        filter_by_num_nodes=lambda n: n == 1,
        base_class=unittest.TestCase,
    )
    assert list(scope) == ["Mine"] and issubclass(scope["Mine"], unittest.TestCase)


def test_autograd_and_generators():
    x = torch.ones(3, requires_grad=True)
    (g,) = flow.autograd.grad(x * x, [x])
    assert g.tolist() == [2, 2, 2]
    flow.autograd.autograd.backward([x * 3], [torch.ones(3)])
    assert x.grad.tolist() == [3, 3, 3]
    with flow.no_grad(), flow.autograd.autograd_mode.no_grad():
        assert not (x * 2).requires_grad
    assert (
        isinstance(flow.Generator(), torch.Generator) and flow.default_generator() is torch.default_generator
    )
    flow.manual_seed(1)


def test_today_s_classes_under_their_old_names():
    assert (
        flow.Size is torch.Size
        and flow.Tensor is torch.Tensor
        and flow.half is torch.float16
        and flow.deprecated.variable_scope("a").value == "a"
    )
    m = flow.nn.Module()
    m.register_parameter("p", flow.nn.Parameter(torch.ones(2)))
    other = flow.nn.Module()
    other.register_parameter("p", flow.nn.Parameter(torch.zeros(2)))
    other.load_state_dict(m.state_dict())
    assert other.p.tolist() == [1, 1]
    sgd = flow.experimental.optim.SGD([m.p], lr=0.5, momentum=0.9)
    assert isinstance(sgd, flow.experimental.optim.Optimizer)
    m.p.grad = torch.ones(2)
    sgd.step()
    again = flow.experimental.optim.SGD([other.p], lr=0.1)
    again.load_state_dict(sgd.state_dict())
    assert again.param_groups[0]["lr"] == 0.5
    sgd.zero_grad(set_to_none=True)
    assert m.p.grad is None
    for fill in (
        "constant_",
        "normal_",
        "uniform_",
        "zeros_",
        "kaiming_normal_",
        "kaiming_uniform_",
        "xavier_normal_",
        "xavier_uniform_",
    ):
        t = torch.full((4, 5), 7.0)
        getattr(flow.nn.init, fill)(t, 3.0) if fill == "constant_" else getattr(flow.nn.init, fill)(t)
        assert (t != 7).all()
    assert flow.distributed.get_local_rank() == 0 and flow.env.all_device_placement(
        "cpu"
    ) == flow.env.all_device_placement("cpu")


def test_odds_and_ends():
    assert (
        flow.dtypes()[1] is flow.float32 and flow.convert_oneflow_dtype_to_numpy_dtype(flow.int8) is np.int8
    )
    with pytest.raises(TypeError, match="expected a OneFlow dtype"):
        flow.convert_oneflow_dtype_to_numpy_dtype("float")
    assert flow.char is torch.int8 and flow.double is torch.float64 and flow.INVALID_SPLIT_AXIS == -1
    assert flow.util.unique_str("a") != flow.util.unique_str("a")
    assert (
        flow.distributed.get_rank() == 0
        and flow.distributed.get_world_size() == 1
        and flow.distributed.is_multi_client() is False
    )
    assert flow.sbp.split(0) == flow.sbp.split(0) and flow.sbp.broadcast != flow.sbp.partial_sum
    flow.profiler.range_push("r")
    flow.profiler.range_pop()
    with pytest.raises(RuntimeError, match="no range is open"):
        flow.profiler.range_pop()
    s = flow.sysconfig
    assert (
        os.path.isdir(s.get_include())
        and os.path.isdir(s.get_lib())
        and any(f.startswith("-I") for f in s.get_compile_flags())
    )
    assert "-ltorch" in s.get_link_flags() and s.has_rpc_backend_local() and not s.has_rpc_backend_grpc()
    assert (s.get_cuda_version() > 0) == s.with_cuda() and isinstance(s.with_xla(), bool)
    flow.inter_job_reuse_mem_strategy("reuse_mem_priority")
    with pytest.raises(ValueError, match="one of"):
        flow.inter_job_reuse_mem_strategy("none")
    assert (
        flow.fixed_placement("cpu", "0:0").parallel_num == 1
        and flow.device_prior_placement is flow.fixed_placement
    )
    assert flow.InitEagerGlobalSession() is None and flow.deprecated.delete_worker_by_bootstrap() is None
    assert flow.experimental.F.relu(torch.tensor([-1.0])).item() == 0
