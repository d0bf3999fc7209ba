"""Frames of a training: the visited states, what every head would do, and the returns."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bootdqn.core.config import AgentConfig
from bootdqn.watch.canvas import (
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
    number,
    rgb,
    shade,
)
from bootdqn.watch.learning import Recording

FPS = 10
"""Frames per second by default."""
_PAUSE_SECONDS = 2.0
"""Duration of the pauses before training, at the episode that finds the reward, and at the end."""
_RIGHT, _LEFT, _UNSEEN = ("#D6E6F5", "#08437F"), ("#FCE3C9", "#A84300"), "#EFECE5"
"""Colours from the lowest to the highest value for heads that go right and left, and of unvisited states."""
_LABEL = 20
"""Height of the label above a head's map."""
_MAX_CHIPS = 24
"""The largest number of heads for which each is shown in the caption."""


def draw_learning(recording: Recording, fps: float) -> Iterator[Image.Image]:
    """Draw the frames of a video, with pauses at both ends and where the reward is found."""
    scene = LearningScene(recording)
    pauses = {0, recording.found_frame, len(recording.ends) - 1}
    for frame in range(len(recording.ends)):
        yield from itertools.repeat(scene.draw(frame), 1 + round(_PAUSE_SECONDS * fps) * (frame in pauses))


class LearningScene:
    """The whole frame: headline, maps of the states, returns, and a caption."""

    def __init__(self, recording: Recording):
        self.recording = recording
        is_grid = len(recording.env.state_shape) == 2
        self.world = GridMap(recording) if is_grid else RowMap(recording)
        # Without the extremes, as one head of ten that diverges would make all others pale.
        low, high = np.percentile(recording.values, (5, 90))
        self.expected = float(low), float(max(high, low + 1e-6))
        """The values that are drawn palest and darkest."""
        best = recording.env.solved_return
        least, most = float(recording.returns.min()), float(recording.returns.max())
        room = 0.06 * max(most - least, best, 1e-6)
        heights = min(least, 0) - room, max(most, best) + room
        self.chart = Axes((730, 484, 1256, 612), (0, len(recording.returns) + 1), heights)
        self.base = Canvas()
        self._draw_base(self.base, best)

    def draw(self, frame: int) -> Image.Image:
        """Draw one frame."""
        canvas, recording = self.base.copy(), self.recording
        over = int(recording.ends[frame])
        self._draw_headline(canvas, over)
        for episode in range(over):
            canvas.dot(self.chart.place(episode + 1, recording.returns[episode]), recording.colour(episode), 3)
        self._draw_caption(canvas, frame, over)
        self.world.draw_places(canvas, frame)
        self.world.draw_heads(canvas, frame, self._preferences(frame))
        return canvas.image

    def _preferences(self, frame: int) -> NDArray[np.uint8]:
        """Colours of every head's states [K, S, 3]: the hue shows its action, a darker shade a higher value."""
        low, high = self.expected
        shares = (self.recording.values[frame] - low) / (high - low)
        right = self.recording.goes_right[frame][..., None]
        return np.where(right, shade(*_RIGHT, shares), shade(*_LEFT, shares))

    def _draw_base(self, canvas: Canvas, best: float) -> None:
        recording, config, chart = self.recording, self.recording.config, self.chart
        title = f"{config.agent_name} learns {config.env}, seed {recording.seed}"
        canvas.text((24, 14), title, 24, bold=True)
        canvas.text((24, 50), recording.env.description, 14, colour=QUIET)
        canvas.text((24, 70), describe_agent(config.deep), 14, colour=QUIET)
        canvas.text((24, 102), "Visited states", 16, bold=True)
        whom = "every head" if config.deep.num_heads > 1 else "the head"
        canvas.text((640, 102), f"Greedy action of {whom}", 16, bold=True)
        x, y = 640.0, 126
        for ramp, label in ((_RIGHT, "right, to the reward"), (_LEFT, "left")):
            canvas.cells((round(x), y + 2, round(x) + 40, y + 16), shade(*ramp, np.linspace(0, 1, 8))[None])
            x += 64 + canvas.text((x + 48, y), label, 13)
        low, high = map(number, self.expected)
        canvas.text((x, y), f"darker: higher value, {low} to {high}", 13, colour=QUIET)
        canvas.text((640, 458), "Return of every episode", 16, bold=True)
        if recording.has_committed_heads:
            canvas.text((1256, 460), "in the colour of the head that acted", 13, colour=QUIET, anchor="ra")
        is_apart = chart.place(0, 0)[1] - chart.place(0, best)[1] > 14
        canvas.frame(chart, ticks=[*[(0.0, "0")] * is_apart, (best, f"best: {number(best)}")])
        canvas.text((chart.box[0], 616), "episode 1", 12, colour=QUIET)
        canvas.text((chart.box[2], 616), f"episode {len(recording.returns)}", 12, colour=QUIET, anchor="ra")
        canvas.line([(24, 642), (1256, 642)], RULE)
        self.world.draw_base(canvas)

    def _draw_headline(self, canvas: Canvas, over: int) -> None:
        recording, right = self.recording, 1256
        canvas.text((right, 14), f"episode {over}" if over else "before training", 24, bold=True, anchor="ra")
        if over and recording.has_committed_heads:
            right -= canvas.text((right, 86), "acts", 18, anchor="rm") + 32
            canvas.chip((right, 74), int(recording.heads[over - 1]), 24)
            right -= canvas.text((right - 8, 86), "head", 18, anchor="rm") + 32
        if over and recording.epsilons[over - 1] > 0:
            share = f"random actions: {recording.epsilons[over - 1]:.0%}"
            canvas.text((right, 86), share, 14, colour=QUIET, anchor="rm")

    def _draw_caption(self, canvas: Canvas, frame: int, over: int) -> None:
        recording, found = self.recording, self.recording.found
        text, was_found = "No episode has reached the reward so far.", False
        if found is not None and found < over:
            who = f": head {recording.heads[found]}" if recording.has_committed_heads else ""
            text, was_found = f"Episode {found + 1}{who} was the first to reach the reward.", True
        canvas.text((24, 670), text, 20, bold=was_found, anchor="lm")
        complete = recording.complete(frame)
        text = f"Heads that would now go all the way: {complete.sum()} of {len(complete)}"
        if len(complete) == 1:
            text = f"The head would now{'' if complete[0] else ' not'} go all the way."
        canvas.text((1256, 660 if len(complete) > 1 else 670), text, 20, bold=bool(complete.any()), anchor="rm")
        for head in range(len(complete) if 1 < len(complete) <= _MAX_CHIPS else 0):
            left = 1260 - 24 * (len(complete) - head)
            if complete[head]:
                canvas.chip((left, 684), head, 20)
            else:
                canvas.box((left, 684, left + 20, 704), outline=RULE)


class RowMap:
    """States in a row: one line for every frame, and one for every head."""

    places: Box = 76, 162, 570, 612
    """Place of the map of visited states, with one column per state and one row per frame."""

    def __init__(self, recording: Recording):
        self.recording = recording
        num_heads = recording.config.deep.num_heads
        self.strip: Box = (740, 166, 1236, 166 + min(27 * num_heads, 274))
        """Place of the map of the heads' actions, with one column per state and one row per head."""
        self.rows = np.full((len(recording.ends) - 1, recording.visited.shape[1], 3), rgb(WHITE))
        for frame in range(1, len(recording.ends)):
            for episode in recording.episodes(frame):
                self.rows[frame - 1, recording.visited[episode]] = rgb(recording.colour(episode))

    def draw_base(self, canvas: Canvas) -> None:
        """Draw what is the same in all frames."""
        recording = self.recording
        stride, num_states = len(recording.episodes(1)), recording.visited.shape[1]
        row = "one row per episode" if stride == 1 else f"one row per {stride} episodes"
        whose = ", in the colour of the head that acted" if recording.has_committed_heads else ""
        canvas.text((24, 126), f"{row}{whose}", 13, colour=QUIET)
        for box in (self.places, self.strip):
            canvas.box((box[0] - 1, box[1] - 1, box[2] + 1, box[3] + 1), outline=RULE)
            for state, label in ((int(recording.env.way_to_reward[0]), "start"), (num_states - 1, "reward")):
                x, _ = _middle(cell_box(box, (1, num_states), 0, state))
                canvas.text((x, box[1] - 4), label, 11, colour=QUIET, anchor="ms")
        left, top, right, bottom = self.places
        canvas.text((left, bottom + 4), "state 0", 12, colour=QUIET)
        canvas.text((right, bottom + 4), f"state {num_states - 1}", 12, colour=QUIET, anchor="ra")
        canvas.text((left - 6, top - 4), "episode", 12, colour=QUIET, anchor="rs")
        for episode in _ticks(len(recording.returns)):
            y = cell_box(self.places, (len(self.rows), 1), (episode - 1) // stride, 0)[1]
            canvas.text((left - 6, max(y, top + 6)), str(episode), 12, colour=QUIET, anchor="rm")

    def draw_places(self, canvas: Canvas, frame: int) -> None:
        """Draw the rows of all episodes so far, and a line below the last one."""
        is_over = np.arange(len(self.rows))[:, None, None] < frame
        canvas.cells(self.places, np.where(is_over, self.rows, rgb(_UNSEEN)))
        if frame:
            left, _, right, bottom = cell_box(self.places, (len(self.rows), 1), frame - 1, 0)
            canvas.line([(left - 2, bottom), (right + 1, bottom)], INK)
        found = self.recording.found_frame
        if found is not None and found <= frame:
            box = cell_box(self.places, (len(self.rows), 1), found - 1, 0)
            canvas.text((box[2] + 4, _middle(box)[1]), "◀ first", 12, anchor="lm")

    def draw_heads(self, canvas: Canvas, frame: int, colours: NDArray[np.uint8]) -> None:
        """Draw one row per head, and mark the head that acts and those that would go all the way."""
        canvas.cells(self.strip, colours)
        num_heads = len(colours)
        complete, acting = self.recording.complete(frame), self.recording.acting(frame)
        for head in range(num_heads):
            left, top, right, bottom = cell_box(self.strip, (num_heads, 1), head, 0)
            middle, size = (top + bottom) / 2, min(bottom - top - 4, 20)
            if size >= 8:
                canvas.line([(left, bottom - 1), (right - 1, bottom - 1)], PAPER, 2)
                if num_heads > 1:
                    canvas.chip((left - size - 8, (top + bottom - size) // 2), head, size)
                if complete[head]:
                    canvas.text((right + 4, middle), "✓", 16, bold=True, anchor="lm")
            if head == acting:
                canvas.box((left - 2, top - 2, right + 2, bottom + 1), outline=INK, width=2)
                canvas.text((left - 34, middle), "acts ▶", 13, anchor="rm")


class GridMap:
    """States in a grid: one map of first visits, and a small map for every head."""

    places: Box = 90, 160, 542, 612
    """Place of the map of visited states."""

    def __init__(self, recording: Recording):
        self.recording = recording
        rows, columns = recording.env.state_shape
        self.shape = rows, columns
        self.reachable = recording.env.reachable[..., None]
        tiles = grid(recording.config.deep.num_heads, (640, 150, 1256, 446), 1.0, _LABEL)
        side = min(min(right - left - 8, bottom - top - _LABEL - 4) for left, top, right, bottom in tiles)
        self.maps: list[Box] = [(x, y + _LABEL, x + side, y + _LABEL + side) for x, y, _, _ in tiles]
        """Places of the maps of the heads' actions."""
        visited = recording.visited
        self.first = np.where(visited.any(axis=0), visited.argmax(axis=0), len(visited))
        """The episode of the first visit to every state, from 0 [S]; the number of episodes if unvisited."""

    def draw_base(self, canvas: Canvas) -> None:
        """Draw what is the same in all frames."""
        whose = "visited cells"
        if self.recording.has_committed_heads:
            whose = "visited cells in the colour of the first head"
        canvas.text((24, 126), f"{whose}; the line is the path of the last episode", 13, colour=QUIET)
        left, top, right, bottom = self.places
        canvas.text((left - 6, top + 10), "start", 12, colour=QUIET, anchor="ra")
        canvas.text((right + 6, bottom - 22), "reward", 12, colour=QUIET)

    def draw_places(self, canvas: Canvas, frame: int) -> None:
        """Draw all visited cells, and the path of the last episode."""
        recording, over = self.recording, int(self.recording.ends[frame])
        colours = np.full((*self.shape, 3), rgb(_UNSEEN))
        for state in np.flatnonzero(self.first < over):
            colours[np.unravel_index(state, self.shape)] = rgb(recording.colour(int(self.first[state])))
        canvas.cells(self.places, np.where(self.reachable, colours, rgb(PAPER)))
        if self.shape[0] <= 30:
            for row, column in np.argwhere(self.reachable[..., 0]):
                left, top, right, bottom = cell_box(self.places, self.shape, row, column)
                canvas.box((left, top, right + 1, bottom + 1), outline=PAPER)
        canvas.box(cell_box(self.places, self.shape, self.shape[0] - 1, self.shape[1] - 1), outline=INK, width=2)
        if over:
            states = np.flatnonzero(recording.visited[over - 1])
            points = self._points(self.places, [divmod(int(state), self.shape[1]) for state in states])
            canvas.line(points, WHITE, 7)
            canvas.line(points, INK, 3)
            canvas.dot(points[-1], INK, 5)

    def draw_heads(self, canvas: Canvas, frame: int, colours: NDArray[np.uint8]) -> None:
        """Draw one map per head, with the path that it would take."""
        complete, acting = self.recording.complete(frame), self.recording.acting(frame)
        for head, box in enumerate(self.maps):
            left, top, right, bottom = box
            canvas.cells(box, np.where(self.reachable, colours[head].reshape(*self.shape, 3), rgb(PAPER)))
            canvas.line(self._points(box, self._path_of(frame, head)), INK, 2)
            if len(self.maps) > 1:
                canvas.chip((left, top - 18), head, 16)
            if complete[head]:
                canvas.text((right, top - 10), "✓", 15, bold=True, anchor="rm")
            outline = left - 1, top - 1, right + 1, bottom + 1
            canvas.box(outline, outline=INK if head == acting else RULE, width=2 if head == acting else 1)
            if head == acting:
                canvas.text((left + 22, top - 10), "acts", 12, bold=True, anchor="lm")

    def _path_of(self, frame: int, head: int) -> list[tuple[int, int]]:
        """The cells on the path that a head would take if no move failed."""
        goes_right = self.recording.goes_right[frame, head].reshape(self.shape)
        column, cells = 0, []
        for row in range(self.shape[0]):
            cells.append((row, column))
            column = min(column + 1, self.shape[1] - 1) if goes_right[row, column] else max(column - 1, 0)
        return cells

    def _points(self, box: Box, cells: Sequence[tuple[int, int]]) -> list[tuple[float, float]]:
        return [_middle(cell_box(box, self.shape, *cell)) for cell in cells]


def _middle(box: Box) -> tuple[float, float]:
    return (box[0] + box[2] - 1) / 2, (box[1] + box[3] - 1) / 2


def _ticks(episodes: int) -> list[int]:
    """About five round numbers, the first of which is 1."""
    step = next(n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10**4, 10**5, 2**31) if 6 * n >= episodes)
    return [1, *range(step, episodes + 1, step)] if step > 1 else list(range(1, episodes + 1))


def describe_agent(config: AgentConfig) -> str:
    """A sentence about how the agent acts."""
    if config.num_heads == 1:
        return "A single head learns the values of all actions."
    who = {
        "committed_head": "one is drawn for every episode and followed to its end",
        "head_per_step": "another one is drawn at every step",
        "vote": "their majority vote is followed",
        "ucb": "their upper confidence bounds are followed",
        "ids": "the least regret per information is followed",
    }[config.acting]
    return f"{config.num_heads} heads learn the values of all actions; {who}."
