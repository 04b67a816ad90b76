"""OneFlow-style tests of modules: losses, convolutions, norms, pooling, recurrent cells."""

import unittest

import numpy as np

import oneflow as flow
import oneflow.unittest
from oneflow.nn.common_types import _size_2_t
from oneflow.test_utils.automated_test_util import *


@flow.unittest.skip_unless_1n1d()
class TestModules(flow.unittest.TestCase):
    @autotest(n=5)
    def test_conv2d(test_case):
        channels = random(1, 6)
        m = torch.nn.Conv2d(
            in_channels=channels,
            out_channels=random(1, 5),
            kernel_size=random(1, 4),
            stride=random() | nothing(),
            padding=random(1, 3).to(int) | nothing(),
            dilation=random(1, 3) | nothing(),
            groups=1,
            bias=random_bool(),
            padding_mode=constant("zeros") | nothing(),
        )
        m.train(random())
        device = random_device()
        m.to(device)
        x = random_tensor(ndim=4, dim1=channels, dim2=random(8, 12), dim3=random(8, 12)).to(device)
        return m(x)

    @autotest(n=5)
    def test_conv1d_and_transposed(test_case):
        m = torch.nn.Conv1d(in_channels=3, out_channels=2, kernel_size=3, padding=1)
        t = torch.nn.ConvTranspose1d(in_channels=2, out_channels=random(1, 3), kernel_size=random(1, 4))
        return t(m(random_tensor(ndim=3, dim1=3, dim2=random(3, 8))))

    @autotest(n=5, rtol=1e-3, atol=1e-3)
    def test_batchnorm(test_case):
        channel = random(1, 4).to(int)
        m = torch.nn.BatchNorm2d(
            num_features=channel,
            eps=random().to(float) | nothing(),
            momentum=random().to(float),
            affine=random_bool(),
            track_running_stats=random_bool(),
        )
        m.train(random())
        return m(random_tensor(ndim=4, dim0=random(2, 4), dim1=channel, dim2=random(2, 5), dim3=random(2, 5)))

    @autotest(n=5, rtol=1e-3, atol=1e-3)
    def test_layer_and_group_norm(test_case):
        x = random_tensor(ndim=4, dim0=2, dim1=4, dim2=3, dim3=3)
        a = torch.nn.LayerNorm([3, 3], elementwise_affine=random_bool())(x)
        b = torch.nn.GroupNorm(num_groups=2, num_channels=4, affine=random_bool())(x)
        return a + b

    @autotest(n=5)
    def test_linear_with_its_own_weight(test_case):
        m = torch.nn.Linear(
            in_features=random(1, 5).to(int) * 2, out_features=random(1, 5), bias=random_bool()
        )
        y = torch.nn.functional.linear(random_tensor(ndim=2, dim1=m.in_features.pytorch), m.weight)
        return y, m.weight.sum()

    @autotest(n=3)
    def test_parameter_is_replaced(test_case):
        m = torch.nn.Linear(2, 3)
        m.weight = torch.nn.Parameter(random_tensor(ndim=2, dim0=3, dim1=2))
        m.bias = torch.nn.Parameter(torch.ones(3))
        return m(random_tensor(ndim=2, dim1=2))

    @autotest(n=5)
    def test_pools(test_case):
        x = random_tensor(ndim=4, dim0=random(1, 3), dim1=random(1, 3), dim2=random(6, 9), dim3=random(6, 9))
        m = torch.nn.MaxPool2d(
            kernel_size=random(2, 4).to(_size_2_t),
            stride=random(1, 3).to(_size_2_t) | nothing(),
            padding=random(0, 2) | nothing(),
            ceil_mode=random_bool(),
        )
        a = torch.nn.AvgPool2d(kernel_size=random(2, 4).to(_size_2_t), stride=random(1, 3).to(_size_2_t))
        g = torch.nn.AdaptiveAvgPool2d(output_size=random(1, 4).to(_size_2_t))
        return m(x), a(x), g(x)

    @autotest(n=3, check_graph=True)
    def test_pool_with_indices(test_case):
        m = torch.nn.MaxPool2d(kernel_size=2, return_indices=True)
        y, i = m(random_tensor(ndim=4, dim2=6, dim3=6))
        return y, i

    @autotest(n=5)
    def test_activations(test_case):
        x = random_tensor(ndim=random(1, 4).to(int), low=-5, high=5)
        layers = (
            torch.nn.ReLU(),
            torch.nn.GELU(),
            torch.nn.SiLU(),
            torch.nn.Mish(),
            torch.nn.Hardswish(),
            torch.nn.Softplus(),
            torch.nn.Tanh(),
            torch.nn.ELU(alpha=random(1, 3)),
            torch.nn.LeakyReLU(negative_slope=random(0, 2).to(float)),
            torch.nn.Hardtanh(),
            torch.nn.LogSigmoid(),
        )
        return [m(x) for m in layers]

    @autotest(n=5)
    def test_losses(test_case):
        n, c = random(1, 5).to(int), random(2, 5).to(int)
        x = random_tensor(ndim=2, dim0=n, dim1=c)
        target = random_tensor(ndim=1, dim0=n, low=0, high=c, dtype=int)
        reduction = oneof("none", "sum", "mean", nothing())
        a = torch.nn.CrossEntropyLoss(reduction=reduction)(x, target)
        b = torch.nn.NLLLoss(reduction="sum")(torch.nn.functional.log_softmax(x, dim=1), target)
        y = random_tensor(ndim=2, dim0=n, dim1=c, requires_grad=False)
        return (
            a,
            b,
            torch.nn.MSELoss(reduction=reduction)(x, y),
            torch.nn.L1Loss()(x, y),
            torch.nn.SmoothL1Loss(beta=0.5)(x, y),
            torch.nn.BCELoss()(torch.sigmoid(x), y),
            torch.nn.BCEWithLogitsLoss()(x, y),
            torch.nn.KLDivLoss(reduction="sum")(x, y),
        )

    @autotest(n=3, rtol=1e-3, atol=1e-4)
    def test_lstm_and_cells(test_case):
        m = torch.nn.LSTM(
            input_size=3,
            hidden_size=random(2, 5).to(int),
            num_layers=random(1, 3).to(int),
            bias=random_bool(),
            batch_first=random_bool(),
        )
        y, (h, c) = m(random_tensor(ndim=3, dim0=2, dim1=2, dim2=3))
        cell = torch.nn.GRUCell(input_size=3, hidden_size=2)
        return y, h, c, cell(random_tensor(ndim=2, dim0=2, dim1=3), random_tensor(ndim=2, dim0=2, dim1=2))

    @autotest(n=3)
    def test_embedding_padding_upsample(test_case):
        e = torch.nn.Embedding(10, 4, padding_idx=random(0, 10).to(int) | nothing())(
            random_tensor(ndim=2, dtype=int, low=0, high=10)
        )
        p = torch.nn.ReflectionPad2d(1)(random_tensor(ndim=4, dim2=4, dim3=4))
        u = torch.nn.Upsample(scale_factor=2.0, mode="bilinear", align_corners=random_bool())(p)
        z = torch.nn.ZeroPad2d((1, 0, 2, 1))(u)
        return e, z

    @autotest(n=3)
    def test_sequential_flatten_identity(test_case):
        first = torch.nn.Linear(4, 3)
        m = torch.nn.Sequential(first, torch.nn.ReLU())
        x = random_tensor(ndim=2, dim1=4)
        return torch.nn.Flatten(start_dim=1)(torch.nn.Identity()(m(x))), first(x)

    @autotest(n=3, check_allclose=False)
    def test_dropout_is_random_and_only_compared_in_form(test_case):
        m = torch.nn.Dropout(p=0.5)
        return m(random_tensor(ndim=3))

    @autotest(n=3)
    def test_dropout_of_one_stream(test_case):
        return torch.nn.functional.dropout(random_tensor(ndim=3), p=0.3, training=True)

    @autotest(n=3)
    def test_evaluation_mode_uses_the_running_statistics(test_case):
        m = torch.nn.BatchNorm1d(3)
        x = random_tensor(ndim=2, dim0=4, dim1=3)
        a = m(x)
        m.eval()
        return a, m(x)

    @autotest(n=2, check_graph="ValidatedFalse")
    def test_a_training_step(test_case):
        m = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
        for _ in range(2):
            optimizer.zero_grad()
            loss = m(random_tensor(ndim=2, dim1=3)).sum()
            loss.backward()
            optimizer.step()
        test_case.assertEqual(m.weight.grad.oneflow.shape, (1, 3))

    @autotest(n=3)
    def test_layers_in_a_list_are_walked_and_indexed(test_case):
        layers = torch.nn.ModuleList([torch.nn.Linear(3, 3), torch.nn.Tanh()])
        x = random_tensor(ndim=2, dim1=3)
        for layer in layers:
            x = layer(x)
        test_case.assertEqual(len(layers), 2)
        return x, layers[0].weight * 2

    @autotest(n=3)
    def test_a_recurrent_state_is_carried_over_drawn_steps(test_case):
        steps = random(2, 4).to(int)
        cell = torch.nn.GRUCell(input_size=2, hidden_size=3)
        x, state = random_tensor(ndim=3, dim0=steps, dim1=2, dim2=2), random_tensor(ndim=2, dim0=2, dim1=3)
        for step in range(steps.value()):
            state = cell(x[step], state)
        return state

    @autotest(n=3)
    def test_gradient_of_a_gradient(test_case):
        x = random_tensor(2)
        (g,) = torch.autograd.grad((x * x * x).sum(), x, create_graph=True)
        return g.sum()

    @autotest(n=3)
    def test_running_statistics_as_outputs(test_case):
        m = torch.nn.BatchNorm1d(3)
        return m(random_tensor(2, 4, 3)), m.running_mean, m.running_var * 2

    @autotest(n=3)
    def test_state_dict(test_case):
        m = torch.nn.Linear(3, 2)
        test_case.assertEqual(list(m.state_dict().oneflow), ["weight", "bias"])
        np.testing.assert_array_equal(m.weight.oneflow.detach().numpy(), m.weight.pytorch.detach().numpy())
        other = torch.nn.Linear(3, 2)
        other.load_state_dict(m.state_dict())
        return other(random_tensor(ndim=2, dim1=3))


if __name__ == "__main__":
    unittest.main()
