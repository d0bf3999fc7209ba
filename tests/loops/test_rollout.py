"""Evaluation in environments of the host, by hand."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from bootdqn.envs.vector import HostEnvs
from bootdqn.loops.rollout import VOTE, evaluate
from scripted import FIRST_ACTION, MODES, Scripted, script_length


class Chooser:
    """Always takes the second action; the entropy of its belief tells the step."""

    def __init__(self):
        self.scripts: list[int] = []
        self.ticks: list[int] = []

    def __call__(self, params: Any, key: Any, obs: Any, policies: Any, tick: int, epsilon: float) -> Any:
        assert (params, epsilon) == ("parameters", 0.0)
        if not self.ticks:
            self.scripts = obs[:, 0].astype(int).tolist()
        self.ticks.append(tick)
        # The first head is certain by as much as the step says, the second is of the opposite opinion.
        certain = (obs[:, 2] + 1)[:, None]
        q = np.stack([np.hstack([-certain, certain]), np.hstack([certain, -certain])], axis=1)
        return np.ones(len(obs), np.int32), SimpleNamespace(entropy=obs[:, 2] + 1, q=q)


def return_by_hand(script: int, episode: int) -> float:
    length = script_length(script, episode)
    return 100 * episode * length + length * (length + 1) / 2 + length * (FIRST_ACTION + 1) / 8


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("episodes", [1, 2, 5])
def test_evaluation_by_hand(mode, episodes):
    policies = [VOTE, 1, 0, VOTE, 1]
    envs = HostEnvs(SyncVectorEnv([Scripted] * len(policies), autoreset_mode=mode))
    for seed in range(4):
        chooser = Chooser()
        found = evaluate(envs, chooser, "parameters", policies, episodes=episodes, seed=[7, seed])
        assert len(set(chooser.scripts)) > 1
        assert chooser.ticks == list(range(len(chooser.ticks)))
        assert [evaluation.policy for evaluation in found] == [VOTE, 1, 0]
        for evaluation, slots in zip(found, ([0, 3], [1, 4], [2]), strict=True):
            played = [(chooser.scripts[slot], episode) for slot in slots for episode in range(episodes)]
            assert evaluation.returns.tolist() == [return_by_hand(*which) for which in played]
            lengths = [script_length(*which) for which in played]
            assert evaluation.entropy == pytest.approx(sum(n * (n + 1) / 2 for n in lengths) / sum(lengths))
            assert evaluation.likeness.observations == sum(lengths)
            squares = sum(2 * step**2 for n in lengths for step in range(1, n + 1))
            np.testing.assert_allclose(evaluation.likeness.products, [[squares, -squares], [-squares, squares]])
            assert evaluation.likeness.agreement == 0
        # No longer than the slowest slot needs.
        longest = max(sum(script_length(s, e) for e in range(episodes)) for s in chooser.scripts)
        assert len(chooser.ticks) <= longest + (episodes - 1 if mode == AutoresetMode.NEXT_STEP else 0)
        again = evaluate(envs, Chooser(), "parameters", policies, episodes=episodes, seed=[7, seed])
        for a, b in zip(found, again, strict=True):
            np.testing.assert_array_equal(a.returns, b.returns)
    envs.close()


def test_evaluation_stops_with_the_episodes_there_are():
    envs = HostEnvs(SyncVectorEnv([Scripted] * 3))
    chooser = Chooser()
    found = evaluate(
        envs,
        chooser,
        "parameters",
        [0, 1, 2],
        episodes=9,
        seed=[1],
        should_stop=lambda: len(chooser.ticks) == 6,
    )
    assert len(chooser.ticks) == 6
    for slot, evaluation in enumerate(found):
        script, time, expected = chooser.scripts[slot], 0, []
        # In this mode an episode's reset takes a tick of its own.
        for episode in range(9):
            time += script_length(script, episode)
            if time <= 6:
                expected.append(return_by_hand(script, episode))
            time += 1
        assert evaluation.returns.tolist() == expected
    none = evaluate(envs, Chooser(), "parameters", [0, 1, 2], episodes=2, seed=[1], should_stop=lambda: True)
    assert [len(evaluation.returns) for evaluation in none] == [0, 0, 0]
    assert [evaluation.entropy for evaluation in none] == [0, 0, 0]
    envs.close()
