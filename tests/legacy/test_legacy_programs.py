"""Programs in the style of OneFlow 0.5's tests and of OneFlow-Benchmark, with `import oneflow as flow`."""

from itertools import product

import numpy as np
import pytest
import torch

import oneflow as flow
import oneflow.compatible.single_client.unittest
import oneflow.typing as oft

STORE = {}


def setter(name):
    return lambda x: STORE.update({name: x.numpy()})


@pytest.mark.parametrize(
    "kind, dtype, shape",
    list(product(["relu", "sigmoid", "tanh", "gelu"], [flow.float32, flow.double], [(10, 20), (64,)])),
)
def test_activation(kind, dtype, shape):
    flow.clear_default_session()
    flow.config.enable_debug_mode(True)
    func_config = flow.FunctionConfig()
    func_config.default_data_type(flow.float)
    activation = {
        "relu": flow.nn.relu,
        "sigmoid": flow.math.sigmoid,
        "tanh": flow.math.tanh,
        "gelu": flow.math.gelu,
    }[kind]

    @flow.global_function(type="train", function_config=func_config)
    def ActivationJob():
        with flow.scope.placement("cpu", "0:0"):
            x = flow.get_variable(
                "x",
                shape=shape,
                dtype=dtype,
                initializer=flow.random_uniform_initializer(minval=-10, maxval=10),
                trainable=True,
            )
            loss = activation(x)
            flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [1e-4]), momentum=0).minimize(
                loss
            )
            flow.watch(x, setter("x"))
            flow.watch_diff(x, setter("x_diff"))
            flow.watch(loss, setter("loss"))
            flow.watch_diff(loss, setter("loss_diff"))
            return loss

    check_point = flow.train.CheckPoint()
    check_point.init()
    out = ActivationJob().get()
    x = torch.tensor(STORE["x"], requires_grad=True)
    y = {"relu": torch.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "gelu": torch.nn.functional.gelu}[
        kind
    ](x)
    y.backward(torch.from_numpy(STORE["loss_diff"]))
    np.testing.assert_allclose(out.numpy(), y.detach(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(STORE["x_diff"], x.grad, rtol=1e-5, atol=1e-6)
    assert np.array_equal(out.numpy(), STORE["loss"])


@flow.unittest.skip_unless_1n1d()
class TestInTheOldStyle(oneflow.compatible.single_client.unittest.TestCase):
    def test_matmul(test_case):
        func_config = flow.FunctionConfig()
        func_config.default_logical_view(flow.scope.consistent_view())
        func_config.default_data_type(flow.float)

        @flow.global_function(function_config=func_config)
        def MatmulJob(a: oft.Numpy.Placeholder((4, 5)), b: oft.Numpy.Placeholder((6, 5))):
            return flow.matmul(a, b, transpose_b=True)

        a, b = (np.random.rand(*s).astype(np.float32) for s in ((4, 5), (6, 5)))
        test_case.assertTrue(np.allclose(MatmulJob(a, b).get().numpy(), a @ b.T, atol=1e-6))

    def test_mirrored_dynamic(test_case):
        func_config = flow.FunctionConfig()
        func_config.default_logical_view(flow.scope.mirrored_view())

        @flow.global_function(function_config=func_config)
        def ConcatJob(
            x: oft.ListNumpy.Placeholder((10, 4), dtype=flow.float),
            y: oft.ListNumpy.Placeholder((10, 4), dtype=flow.float),
        ):
            return flow.concat([x, y], axis=0, max_dim_size=20)

        x, y = np.random.rand(3, 4).astype(np.float32), np.random.rand(7, 4).astype(np.float32)
        out = ConcatJob([x], [y]).get().numpy_list()[0]
        test_case.assertTrue(np.array_equal(out, np.concatenate([x, y])))

    def test_two_jobs_and_an_eager_style_variable(test_case):
        @flow.global_function()
        def assign(value: oft.Numpy.Placeholder((2, 3))):
            flow.assign(flow.get_variable("v", shape=(2, 3), initializer=flow.constant_initializer(0)), value)

        @flow.global_function()
        def read():
            return flow.identity(
                flow.get_variable("v", shape=(2, 3), initializer=flow.constant_initializer(0))
            )

        value = np.random.rand(2, 3).astype(np.float32)
        assign(value)
        test_case.assertTrue(np.array_equal(read().get().numpy(), value))


def test_resnet_block_of_the_benchmarks():
    """The network code of a ResNet in NCHW: hand-made variables, fused batch norm, a momentum optimizer with
    warmup and label smoothing.
    """
    init = flow.variance_scaling_initializer(2, "fan_in", "random_normal", data_format="NCHW")
    reg = flow.regularizers.l2(1.0 / 32768)

    def conv(x, name, filters, kernel, stride=1):
        weight = flow.get_variable(
            name + "-weight",
            shape=(filters, x.shape[1], kernel, kernel),
            dtype=x.dtype,
            initializer=init,
            regularizer=reg,
            model_name="weight",
            trainable=True,
        )
        return flow.nn.conv2d(
            x, weight, stride, "SAME" if kernel > 1 else "VALID", data_format="NCHW", name=name
        )

    def bn(x, name, zero=False):
        return flow.layers.batch_normalization(
            inputs=x,
            axis=1,
            momentum=0.9,
            epsilon=1e-5,
            center=True,
            scale=True,
            trainable=True,
            training=True,
            name=name,
            gamma_initializer=flow.zeros_initializer() if zero else flow.ones_initializer(),
            gamma_regularizer=reg,
        )

    def block(x, name, filters, stride):
        with flow.scope.namespace(name):
            shortcut = bn(conv(x, "short", filters, 1, stride), "short_bn")
            y = flow.nn.relu(bn(conv(x, "a", filters, 3, stride), "a_bn"))
            y = conv(y, "b", filters, 3)
            return flow.layers.batch_normalization_add_relu(
                y,
                addend=shortcut,
                axis=1,
                momentum=0.9,
                epsilon=1e-5,
                name="b_bn",
                gamma_initializer=flow.zeros_initializer(),
            )

    def label_smoothing(labels, classes, eta):
        return flow.one_hot(
            labels, depth=classes, dtype=flow.float, on_value=1 - eta + eta / classes, off_value=eta / classes
        )

    config = flow.function_config()
    config.default_logical_view(flow.scope.consistent_view())
    config.default_data_type(flow.float)
    config.enable_fuse_model_update_ops(True)
    config.cudnn_conv_heuristic_search_algo(False)

    @flow.global_function("train", config)
    def TrainNet(
        images: oft.Numpy.Placeholder((8, 3, 16, 16)), labels: oft.Numpy.Placeholder((8,), dtype=flow.int32)
    ) -> oft.Numpy:
        x = flow.nn.relu(bn(conv(images, "stem", 8, 7, 2), "stem_bn"))
        x = flow.nn.max_pool2d(x, ksize=3, strides=2, padding="SAME", data_format="NCHW", name="pool")
        x = block(block(x, "s1", 8, 1), "s2", 16, 2)
        pool = flow.nn.avg_pool2d(x, ksize=2, strides=1, padding="VALID", data_format="NCHW", name="pool5")
        logits = flow.layers.dense(
            flow.reshape(pool, (pool.shape[0], -1)),
            units=4,
            use_bias=True,
            kernel_initializer=flow.variance_scaling_initializer(2, "fan_in", "random_normal"),
            bias_initializer=flow.zeros_initializer(),
            kernel_regularizer=reg,
            bias_regularizer=reg,
            name="fc1001",
        )
        loss = flow.nn.softmax_cross_entropy_with_logits(
            label_smoothing(labels, 4, 0.1), logits, name="softmax_loss"
        )
        loss = flow.math.reduce_mean(loss)
        warmup = flow.optimizer.warmup.linear(5, 0)
        flow.optimizer.SGD(flow.optimizer.CosineScheduler(0.2, 60, warmup=warmup), momentum=0.9).minimize(
            loss
        )
        return loss

    rng = np.random.default_rng(0)
    labels = np.arange(8, dtype=np.int32) % 4
    images = (rng.normal(size=(8, 3, 16, 16)) + labels[:, None, None, None]).astype(np.float32)
    losses = [float(TrainNet(images, labels)) for _ in range(60)]
    assert losses[-1] < 0.45 < 1.0 < losses[0]  # the smoothed labels' own entropy is 0.36
    names = set(flow.get_all_variables())
    assert {
        "stem-weight",
        "s1-a-weight",
        "s2-b_bn-gamma",
        "fc1001-bias",
        "fc1001-bias-momentum",
        "System-Train-TrainStep-TrainNet",
    } <= names


def test_a_transformer_layer_of_the_benchmarks():
    """Masked self-attention as BERT's and GPT's job-function code writes it."""
    batch, seq, heads, size = 2, 6, 2, 4
    hidden = heads * size
    init = flow.truncated_normal_initializer(0.0, 0.02)

    def fc(x, units, name):
        w = flow.get_variable(
            name=f"{name}-weight",
            shape=[x.shape[1], units],
            dtype=x.dtype,
            model_name="weight",
            initializer=init,
        )
        b = flow.get_variable(
            name=f"{name}-bias",
            shape=[units],
            dtype=x.dtype,
            model_name="bias",
            initializer=flow.constant_initializer(0.0),
        )
        return flow.nn.bias_add(flow.matmul(a=x, b=w), b)

    def split_heads(x):
        return flow.transpose(flow.reshape(x, [batch, seq, heads, size]), perm=[0, 2, 1, 3])

    @flow.global_function(type="train")
    def job(
        ids: oft.Numpy.Placeholder((batch, seq), dtype=flow.int32),
        mask: oft.Numpy.Placeholder((batch, seq), dtype=flow.int32),
    ) -> oft.Numpy:
        with flow.scope.namespace("bert"):
            table = flow.get_variable("embedding", shape=[20, hidden], initializer=init)
            position = flow.get_variable("position", shape=[1, seq, hidden], initializer=init)
            x = flow.gather(params=table, indices=ids, axis=0)
            x = flow.math.add(x, flow.slice(position, begin=[None, 0, 0], size=[None, seq, -1]))
            x = flow.nn.dropout(
                flow.layers.layer_norm(x, begin_norm_axis=-1, begin_params_axis=-1, name="ln"), rate=0.1
            )
            flat = flow.reshape(x, [-1, hidden])
            q, k, v = (split_heads(fc(flat, hidden, n)) for n in ("q", "k", "v"))
            scores = flow.matmul(q, k, transpose_b=True) * (1.0 / size**0.5)
            addition = (1.0 - flow.cast(flow.reshape(mask, [batch, 1, 1, seq]), dtype=flow.float)) * -10000.0
            probs = flow.nn.softmax(scores + addition)
            y = flow.reshape(flow.transpose(flow.matmul(probs, v), perm=[0, 2, 1, 3]), [-1, hidden])
            y = flow.layers.layer_norm(
                fc(flow.math.gelu(fc(y, 2 * hidden, "up")), hidden, "down") + flat,
                begin_norm_axis=1,
                begin_params_axis=-1,
                name="out",
            )
            logits = flow.nn.bias_add(
                flow.matmul(y, table, transpose_b=True),
                flow.get_variable("output_bias", [20], initializer=flow.zeros_initializer()),
            )
            loss = flow.nn.sparse_softmax_cross_entropy_with_logits(
                logits=logits, labels=flow.reshape(ids, [-1])
            )
        policy = flow.optimizer.loss_scale.dynamic_loss_scale(initial_loss_scale=2**10, increment_period=20)
        opt = flow.optimizer.AdamW(
            flow.optimizer.PolynomialScheduler(0.005, 200, 0.0, warmup=flow.optimizer.warmup.linear(10, 0)),
            epsilon=1e-6,
            weight_decay=0.01,
            weight_decay_excludes=["bias", "LayerNorm", "ln", "out"],
            grad_clipping=flow.optimizer.grad_clipping.by_global_norm(1.0),
            loss_scale_policy=policy,
        )
        opt.minimize(loss)
        return loss

    ids = np.random.default_rng(0).integers(1, 20, (batch, seq)).astype(np.int32)
    losses = [float(job(ids, np.ones_like(ids)).mean()) for _ in range(80)]
    assert losses[-1] < 0.3 * losses[0]
