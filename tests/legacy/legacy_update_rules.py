"""Update rules of OneFlow 0.4 and 0.5 in float64 NumPy: `rule(p, g, state, t)` returns the new value of a
variable.

Source: the update functors of `oneflow/user/kernels/model_update_kernel_util.h`, unless a rule names another
source. `t` counts steps from 0; `state` keeps the slots of one variable; the learning rate is LR.
"""

import numpy as np

LR = 0.1


def sgd(decay=0.0):
    """SGDUpdateFunctor."""
    return lambda p, g, state, t: p - LR * (g + decay * p)


def momentum(beta, decay=0.0):
    """MomentumUpdateFunctor: the rate is inside the momentum."""

    def rule(p, g, state, t):
        state["momentum"] = beta * state.get("momentum", 0) - LR * g
        return p + state["momentum"] - LR * decay * p

    return rule


def _moments(g, state, beta1, beta2):
    state["m"] = beta1 * state.get("m", 0) + (1 - beta1) * g
    state["v"] = beta2 * state.get("v", 0) + (1 - beta2) * g * g
    return state["m"], state["v"]


def adam(beta1=0.9, beta2=0.99, epsilon=1e-3, correct=False, decay=0.0):
    """AdamUpdateFunctor of 0.5: the bias factors correct m and v; decay and epsilon are left alone."""

    def rule(p, g, state, t):
        m, v = _moments(g, state, beta1, beta2)
        first, second = (1 - beta1 ** (t + 1), 1 - beta2 ** (t + 1)) if correct else (1, 1)
        return p - LR / first * m / (np.sqrt(v) / np.sqrt(second) + epsilon) - LR * decay * p

    return rule


def adam_0_4(beta1=0.9, beta2=0.99, epsilon=1e-3, decay=0.0):
    """AdamUpdateFunctor of 0.4 with the rate of adam_bias_correction_learning_rate_kernel.cpp: decay is
    scaled too.
    """

    def rule(p, g, state, t):
        m, v = _moments(g, state, beta1, beta2)
        rate = LR * np.sqrt(1 - beta2 ** (t + 1)) / (1 - beta1 ** (t + 1))
        return p - rate * (m / (np.sqrt(v) + epsilon) + decay * p)

    return rule


def rows_only(rule):
    """Rows of zero gradient keep their value and slots, as with indexed slices
    (indexed_slices_optimizer_rewrite_pass.cpp).
    """

    def lazily(p, g, state, t):
        touched = (g != 0).any(axis=tuple(range(1, g.ndim)), keepdims=True)
        before = {key: np.copy(value) for key, value in state.items()}
        moved = rule(p, g, state, t)
        for key, value in state.items():
            state[key] = np.where(touched, value, before.get(key, 0))
        return np.where(touched, moved, p)

    return lazily


def rmsprop(centered, decay_rate=0.9, epsilon=1e-3):
    """RmsPropUpdateFunctor: epsilon is inside the root."""

    def rule(p, g, state, t):
        state["square"] = decay_rate * state.get("square", 0) + (1 - decay_rate) * g * g
        state["mean"] = decay_rate * state.get("mean", 0) + (1 - decay_rate) * g
        denominator = state["square"] - (state["mean"] ** 2 if centered else 0)
        return p - LR * g / np.sqrt(denominator + epsilon)

    return rule


def lars(beta=0.9, epsilon=1e-9, coefficient=0.01, decay=0.0):
    """LarsUpdateFunctor with the local rate of LarsUpdateKernelUtil."""

    def rule(p, g, state, t):
        p_norm, g_norm = np.linalg.norm(p), np.linalg.norm(g)
        trust = (
            coefficient * p_norm / (epsilon + g_norm + decay * p_norm) if p_norm > 0 and g_norm > 0 else 1.0
        )
        state["momentum"] = beta * state.get("momentum", 0) - LR * trust * g
        return p + state["momentum"] - LR * trust * decay * p

    return rule


def lamb(beta1=0.9, beta2=0.99, epsilon=1e-6, decay=0.0):
    """LambGradFunctor, LambLRFunctor, LambUpdateFunctor: the norm of the direction is taken without decay.

    LAMB_OF_0_9 has the values of three steps of optim.LAMB with a decay of 0.5 in OneFlow 0.9.0.
    """

    def rule(p, g, state, t):
        m, v = _moments(g, state, beta1, beta2)
        direction = m / (1 - beta1 ** (t + 1)) / (np.sqrt(v / (1 - beta2 ** (t + 1))) + epsilon)
        p_norm, norm = np.linalg.norm(p), np.linalg.norm(direction)
        trust = p_norm / norm if p_norm > 0 and norm > 0 else 1.0
        return p - LR * trust * (direction + decay * p)

    return rule


# optim.LAMB(lr=0.1, betas=(0.9, 0.99), eps=1e-3, weight_decay=0.5) from (1, -2, 3); step t has the gradient
# (t + 1) * (0.1, 0.2, -0.3)
LAMB_OF_0_9 = [
    (0.6761386, -1.9989189, 2.890607),
    (0.39726484, -1.9906085, 2.7865694),
    (0.15708648, -1.9818413, 2.6948206),
]
# optim.RMSprop(lr=0.1, alpha=0.9, eps=0.1, centered=...) on the same values
RMSPROP_OF_0_9 = {
    False: [
        (0.9685342, -2.0620174, 3.0908673),
        (0.9067834, -2.1776805, 3.2489262),
        (0.81770027, -2.3307536, 3.4405067),
    ],
    True: [
        (0.96851856, -2.062137, 3.091245),
        (0.90651876, -2.1794617, 3.253626),
        (0.8161732, -2.3392198, 3.458827),
    ],
}
