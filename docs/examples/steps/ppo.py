"""PPO on a point that has to reach the origin: clipped ratios, an entropy bonus, and several epochs of minibatches.

    python docs/examples/steps/ppo.py
"""
import torch
from torch import nn
from torch.distributions import Normal

import oneflow as flow

CLIP, WORLDS, HORIZON, MINIBATCH = 0.2, 16, 16, 64


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
        self.critic = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
        self.log_std = nn.Parameter(torch.full((2,), -0.5))

    def forward(self, states):
        return Normal(self.actor(states), self.log_std.exp()), self.critic(states).squeeze(-1)


@torch.no_grad()
def rollout(agent, gamma=0.9):
    """States, actions, log probabilities, values and returns of one rollout in all worlds."""
    states, records, rewards, returns = torch.randn(WORLDS, 2), [], [], []
    for _ in range(HORIZON):
        policy, values = agent(states)
        actions = policy.sample()
        records.append((states, actions, policy.log_prob(actions).sum(-1), values))
        states = states + 0.3 * actions
        rewards.append(-states.norm(dim=-1))
    total = agent(states)[1]
    for reward in reversed(rewards):
        total = reward + gamma * total
        returns.insert(0, total)
    return [torch.cat(column) for column in (*zip(*records), returns)]


def main(compile_step=flow.compile_step, steps=50):
    torch.manual_seed(0)
    agent = ActorCritic()
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3, eps=1e-5)

    def train_step(states, actions, old_log_probs, old_values, returns):
        policy, values = agent(states)
        log_ratio = policy.log_prob(actions).sum(-1) - old_log_probs
        ratio = log_ratio.exp()
        advantages = returns - old_values
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        policy_loss = -torch.min(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages).mean()
        value_loss = 0.5 * (values - returns).square().mean()
        loss = policy_loss + 0.5 * value_loss - 0.01 * policy.entropy().sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()
        kl, clipped = (ratio - 1 - log_ratio).mean(), ((ratio - 1).abs() > CLIP).float().mean()
        return {"loss": loss.item(), "kl": kl.item(), "clipped": clipped.item()}

    train_step = compile_step(train_step)
    losses = []
    while len(losses) < steps:
        batch = rollout(agent)
        for picks in (torch.randperm(WORLDS * HORIZON) for _ in range(4)):
            logs = [train_step(*(column[i] for column in batch)) for i in picks.split(MINIBATCH)]
            losses += [log["loss"] for log in logs]
            if logs[-1]["kl"] > 0.02 or len(losses) >= steps:
                break
    return losses, list(agent.parameters())


if __name__ == "__main__":
    losses, _ = main()
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
