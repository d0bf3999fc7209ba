"""Frames of heads at play: a game with the heads' votes, or the games of all heads side by side."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bootdqn.loops.rollout import VOTE
from bootdqn.types import Belief
from bootdqn.watch.canvas import (
    ACCENT,
    INK,
    PAPER,
    QUIET,
    RULE,
    WHITE,
    Axes,
    Box,
    Canvas,
    cell_box,
    grid,
    ink_on,
    number,
    rgb,
    shade,
)
from bootdqn.watch.playing import Performer
from bootdqn.watch.stages import Scene

SECONDS = 30.0
"""The default of the longest playing time for every model, in seconds of video."""
_PAUSE_SECONDS = 1.5
"""Duration of the pause at the end of an episode."""
_MEMORY_SECONDS = 15.0
"""Time span of the chart of disagreement."""
_LEAST, _MOST = "#F3F1EC", "#2F5D8C"
"""Colours of the lowest and the highest value of a head."""
_CHOSEN, _SINGLE_STEPS = "#FFEDB8", "#BFD3E6"
_NAMES = 112
"""Width of the names of the actions in pixels."""
_LABEL = 26
"""Height of the label above a head's game in pixels."""


def draw_playing(performer: Performer, *, heads: bool, fps: float, seconds: float) -> Iterator[Image.Image]:
    """Draw the frames of an episode, or of its first seconds, with a pause if it ends.

    Args:
        performer: the heads that play.
        heads: whether the heads play side by side, each alone, instead of by vote.
        fps: frames per second, with one step per frame.
        seconds: longest duration of the video without the pause.
    """
    stage = HeadsScene(performer) if heads else VoteScene(performer, fps)
    policies = range(performer.config.deep.num_heads) if heads else [VOTE]
    for scene, beliefs, actions in performer.play(policies, _frames(fps, seconds) - 1):
        picture = stage.draw(scene, beliefs, actions)
        yield picture
        if scene.over.all():
            yield from itertools.repeat(picture, round(_PAUSE_SECONDS * fps))


def most_frames(fps: float, seconds: float) -> int:
    """The largest number of frames that `draw_playing` can yield."""
    return _frames(fps, seconds) + round(_PAUSE_SECONDS * fps)


def _frames(fps: float, seconds: float) -> int:
    return max(round(seconds * fps), 1)


class VoteScene:
    """A game played by vote, with the votes for every action and the values of all heads."""

    def __init__(self, performer: Performer, fps: float):
        self.performer = performer
        self.fps = fps
        self.step, self.total = -1, 0.0
        self.entropies: list[float] = []
        self.base: Canvas | None = None

    def draw(self, scene: Scene, beliefs: Belief, actions: NDArray[Any]) -> Image.Image:
        """Draw the next frame."""
        self.step += 1
        self.total += float(scene.reward[0])
        over = bool(scene.over[0])
        if not over:  # otherwise nothing is left to decide, and the last decision remains visible
            self.decision = Belief(*(x[0] for x in beliefs)), int(actions[0])
            self.entropies.append(float(beliefs.entropy[0]))
        if self.base is None:
            self._lay_out(scene)
        assert self.base is not None
        canvas, (left, _, _, bottom) = self.base.copy(), self.game
        if scene.pictures is not None:
            canvas.picture(self.game, scene.pictures[0])
        canvas.text((left, bottom + 26), f"return so far {number(self.total)}", 22, bold=True, anchor="lm")
        note = f"step {self.step}, {self.step / self.fps:.0f} s of video"
        if over:
            note = f"the episode ended after {self.step} steps"
        canvas.text((left, bottom + 56), note, 14, colour=INK if over else QUIET, anchor="lm")
        belief, action = self.decision
        self._draw_votes(canvas, np.asarray(belief.votes), action)
        self._draw_values(canvas, np.asarray(belief.q).swapaxes(0, 1))
        self._draw_entropy(canvas)
        return canvas.image

    def _lay_out(self, scene: Scene) -> None:
        """Lay out the frame, and draw what is the same in all frames."""
        config, num_actions = self.performer.config, self.performer.stage.num_actions
        num_heads, ratio = config.deep.num_heads, picture_ratio(scene)
        width = round(min(540 * ratio, 560))
        self.game: Box = (24, 104, 24 + width, 104 + round(width / ratio))
        left, bottom = self.game[2] + 48, 170 + min(52 * num_actions, 338)
        bars = left + _NAMES
        self.votes: Box = (bars, 170, bars + (1256 - bars) * 3 // 10, bottom)
        """Place of the votes, with one row per action."""
        self.values: Box = (self.votes[2] + 48, 170, 1256, bottom)
        """Place of the values, with one row per action and one column per head."""
        top, span = max(bottom + 96, 500), max(round(_MEMORY_SECONDS * self.fps), 2)
        self.chart = Axes((left + 44, top, 1256, 690), (1 - span, 0), (0, math.log(max(num_actions, 2))))
        canvas = self.base = Canvas()
        canvas.text((24, 14), f"{config.agent_name} plays {config.env}", 24, bold=True)
        canvas.text((1256, 18), self.performer.title, 20, bold=True, anchor="ra")
        who = "The greedy action of the only head is taken"
        if num_heads > 1:
            who = f"{num_heads} heads vote at every step, and the majority is followed"
        epsilon = config.evaluation_epsilon
        who += f", except for {epsilon:.0%} of all actions, which are random." if epsilon else "."
        canvas.text((24, 50), who, 14, colour=QUIET)
        if scene.pictures is None:
            draw_no_picture(canvas, self.game, self.performer.stage.no_picture)
        canvas.text((left, 104), "Votes for every action", 16, bold=True)
        canvas.text((left, 127), "coloured row: the action taken", 13, colour=QUIET)
        whose = "each head" if num_heads > 1 else "the head"
        canvas.text((self.values[0], 104), f"Values of {whose}", 16, bold=True)
        canvas.text((self.values[0], 127), "darker: higher, ●: greedy action", 13, colour=QUIET)
        if 1 < num_heads <= (1256 - self.values[0]) // 14:
            canvas.text((self.values[0] - 6, 158), "head", 12, colour=QUIET, anchor="rm")
            for head in range(num_heads):
                cell = cell_box(self.values, (1, num_heads), 0, head)
                canvas.chip(((cell[0] + cell[2]) // 2 - 8, 150), head, 16)
        canvas.text((left, top - 46), "Disagreement of the heads", 16, bold=True)
        note = "entropy of the vote: thin per step, thick as a mean over a second"
        canvas.text((left, top - 24), note if num_heads > 1 else "none with a single head", 13, colour=QUIET)
        canvas.frame(self.chart, ticks=[(0, "0"), (self.chart.y[1], f"{self.chart.y[1]:.2f}")])
        canvas.text((self.chart.box[0] + 6, top + 4), "votes evenly split", 11, colour=QUIET)
        canvas.text((self.chart.box[0] + 6, 674), "all heads agree", 11, colour=QUIET)
        canvas.text((self.chart.box[0], 694), f"{_MEMORY_SECONDS:.0f} s ago", 12, colour=QUIET)
        canvas.text((1256, 694), "now", 12, colour=QUIET, anchor="ra")

    def vote_box(self, action: int) -> Box:
        """The place of an action's bar, which is full if all who vote are for it."""
        left, top, right, bottom = cell_box(self.votes, (self.performer.stage.num_actions, 1), action, 0)
        return left, top + 2, right, bottom - 2

    def _draw_votes(self, canvas: Canvas, votes: NDArray[Any], action: int) -> None:
        names, num_voters = self.performer.stage.action_names, self.performer.config.deep.num_voters
        name_left = self.votes[0] - _NAMES
        for index, name in enumerate(names):
            left, top, right, bottom = self.vote_box(index)
            chosen, middle, size = index == action, (top + bottom) / 2, min(15, max(bottom - top, 8))
            if chosen:
                canvas.box((name_left - 8, top - 2, self.values[0] - 6, bottom + 2), fill=_CHOSEN)
            canvas.text((name_left, middle), name[:13], size, bold=chosen, anchor="lm")
            canvas.box((left, top, right, bottom), fill=WHITE, outline=RULE)
            share = float(votes[index]) / num_voters
            if share:
                canvas.box((left, top, left + round(share * (right - left)), bottom), fill=ACCENT)
            canvas.text((right + 6, middle), number(float(votes[index])), size, bold=chosen, anchor="lm")
        if votes[action] < votes.max():
            canvas.text((name_left, self.votes[3] + 6), "at random, not by vote", 13, bold=True)

    def _draw_values(self, canvas: Canvas, q: NDArray[Any]) -> None:
        """Draw the values [A, K] by how far they are below the highest value of the same head, on one scale."""
        loss = q.max(axis=0) - q
        colours = shade(_MOST, _LEAST, loss / max(float(loss.max()), 1e-9))
        canvas.cells(self.values, colours)
        width = (self.values[2] - self.values[0]) / q.shape[1]
        height = (self.values[3] - self.values[1]) / q.shape[0]
        has_room = width >= 39 and height >= 22  # for six characters
        decimals = max(4 - len(f"{np.abs(q).max():.0f}"), 0)
        for action, head in np.ndindex(*q.shape):
            left, top, right, bottom = cell_box(self.values, (q.shape[0], q.shape[1]), action, head)
            middle, ink = ((left + right) / 2, (top + bottom) / 2), ink_on(colours[action, head])
            if width >= 6 and height >= 6:
                canvas.box((left, top, right, bottom), outline=PAPER)
            if has_room:
                value = f"{q[action, head]:.{decimals}f}".replace("-", "−")
                canvas.text(middle, value, 10, colour=ink, anchor="mm")
            if not loss[action, head]:
                canvas.dot((middle[0], top + 6) if has_room else middle, ink, min(3.0, width / 3, height / 3))

    def _draw_entropy(self, canvas: Canvas) -> None:
        span, window = round(1 - self.chart.x[0]), max(round(self.fps), 1)
        every = np.array(self.entropies[-span - window :])
        sums = np.concatenate([np.zeros(window), np.cumsum(every)])
        means = (sums[window:] - sums[:-window]) / np.minimum(np.arange(len(every)) + 1, window)
        for values, colour, width in ((every, "#BFD3E6", 1), (means, ACCENT, 3)):
            recent = values[-span:]
            points = [self.chart.place(index + 1 - len(recent), float(v)) for index, v in enumerate(recent)]
            canvas.line(points, colour, width)
        canvas.dot(points[-1], ACCENT, 5)


class HeadsScene:
    """The games of all heads side by side; games that have ended are dimmed."""

    def __init__(self, performer: Performer):
        self.performer = performer
        self.step = -1
        self.totals = np.zeros(performer.config.deep.num_heads)
        self.lengths = np.zeros(performer.config.deep.num_heads, int)
        self.over = np.zeros(performer.config.deep.num_heads, bool)
        self.tiles: list[Box] = []
        self.base = Canvas()
        config = performer.config
        self.base.text((24, 14), f"The heads of {config.agent_name} play {config.env}, each alone", 24, bold=True)
        self.base.text((1256, 18), performer.title, 20, bold=True, anchor="ra")
        note = "All games start from the same state, and only the heads differ."
        if config.evaluation_epsilon:
            note += f" {config.evaluation_epsilon:.0%} of all actions are random, and the same in all games."
        self.base.text((24, 50), note, 14, colour=QUIET)

    def draw(self, scene: Scene, beliefs: Belief, actions: NDArray[Any]) -> Image.Image:
        """Draw the next frame."""
        del beliefs
        self.step += 1
        self.totals += scene.reward
        self.lengths = np.where(self.over, self.lengths, self.step)
        self.over = scene.over
        if not self.tiles:
            self.tiles = grid(len(self.totals), (16, 92, 1264, 712), picture_ratio(scene), _LABEL + 8)
        canvas = self.base.copy()
        canvas.text((1256, 50), f"step {self.step}", 14, colour=QUIET, anchor="ra")
        for head in range(len(self.tiles)):
            self._draw_head(canvas, scene, head, self.performer.stage.action_names[int(actions[head])])
        return canvas.image

    def _draw_head(self, canvas: Canvas, scene: Scene, head: int, action: str) -> None:
        left, top, right, bottom = self.tiles[head]
        game, over = (left + 6, top + _LABEL, right - 6, bottom - 8), bool(scene.over[head])
        if scene.pictures is None:
            draw_no_picture(canvas, game, self.performer.stage.no_picture)
        else:
            picture = scene.pictures[head]
            game = canvas.picture(game, (0.2 * picture + 0.8 * rgb(PAPER)).astype(np.uint8) if over else picture)
        left, top, right, bottom = game
        total, y = f"return {number(self.totals[head])}", top - 13
        width = canvas.text((left, y), "head", 14, anchor="lm")
        canvas.chip((left + width + 6, y - 10), head, 20)
        canvas.text((left + width + 34, y), total, 14, bold=True, anchor="lm")
        if over:
            middle = (left + right) / 2, (top + bottom) / 2
            canvas.text((middle[0], middle[1] - 12), total, 20, bold=True, anchor="mm")
            canvas.text((middle[0], middle[1] + 12), f"ended at step {self.lengths[head]}", 14, anchor="mm")
        else:
            canvas.text((right, y), action[:13], 12, colour=QUIET, anchor="rm")


def picture_ratio(scene: Scene) -> float:
    """Width divided by height of the pictures, or of the empty area if there are none."""
    return 4 / 3 if scene.pictures is None else scene.pictures[0].shape[1] / scene.pictures[0].shape[0]


def draw_no_picture(canvas: Canvas, box: Box, why: str) -> None:
    """Draw an empty area that says why there is no picture."""
    canvas.box(box, fill=WHITE, outline=RULE)
    middle = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    canvas.text((middle[0], middle[1] - 10), "no picture", 16, bold=True, anchor="mm")
    canvas.text((middle[0], middle[1] + 14), why[: (box[2] - box[0]) // 8], 13, colour=QUIET, anchor="mm")
