"""Draws street-like scenes: JPEG pictures with indexed masks, laid out like PASCAL VOC's.

    python examples/draw_pairs.py OUT --pairs 200

writes OUT/images/000000.jpg …, OUT/masks/000000.png …, OUT/pairs.csv and OUT/classes.txt. A pair
depends on the seed and on its own number alone, so any number of processes draws the same files,
and more pairs are the same ones and then some. Needs Pillow and numpy only.

Lengths below are metres: x to the right of the camera, y above the road, z ahead.
"""

from __future__ import annotations

import argparse
import csv
import functools
import math
import multiprocessing
import os
import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

CLASSES = (
    "sky",
    "building",
    "pole",
    "road",
    "pavement",
    "tree",
    "sign",
    "fence",
    "car",
    "pedestrian",
    "lane mark",
)
SKY, BUILDING, POLE, ROAD, PAVEMENT, TREE, SIGN, FENCE, CAR, PEDESTRIAN, LANE_MARK = range(11)
VOID = 255
PAIRS_A_SCENE = 10
DEFAULT_SIZE = (480, 360)
DEFAULT_QUALITY = 95

# How rough each class looks, in 1/64 of the noise's own amplitude; in the order of CLASSES.
ROUGHNESS = (3, 13, 10, 13, 17, 60, 6, 30, 6, 16, 9)
EYE_HEIGHT = 1.4
NEAREST, FARTHEST = 2.5, 90.0

Colour = tuple[int, int, int]
Point = tuple[float, float]


@dataclass(frozen=True)
class Camera:
    """A pinhole camera that looks along the road."""

    centre: float
    horizon: float
    focal: float

    def project(self, x: float, y: float, z: float) -> Point:
        """Where a point of the street falls in the picture: column and row, in pixels."""
        scale = self.focal / z
        return self.centre + x * scale, self.horizon + (EYE_HEIGHT - y) * scale


@dataclass(frozen=True)
class Scene:
    """What the pairs of one street have in common, so that a split by scene means something."""

    light: float
    haze: Colour
    zenith: Colour
    walls: tuple[Colour, ...]
    leaves: Colour
    kerb: float
    pavement_width: float


@dataclass
class Canvas:
    """A picture and, beside it, the number of the object that each of its pixels shows."""

    camera: Camera
    picture: ImageDraw.ImageDraw
    objects: ImageDraw.ImageDraw
    class_ids: list[int] = field(default_factory=lambda: [SKY])

    def start_object(self, class_id: int) -> None:
        """What is drawn from here on is one new object of this class."""
        self.class_ids.append(class_id)

    def polygon(self, points: list[Point], colour: Colour) -> None:
        self.picture.polygon(points, fill=colour)
        self.objects.polygon(points, fill=len(self.class_ids) - 1)

    def ellipse(self, centre: Point, radii: Point, colour: Colour) -> None:
        (u, v), (across, down) = centre, radii
        box = (u - across, v - down, u + across, v + down)
        self.picture.ellipse(box, fill=colour)
        self.objects.ellipse(box, fill=len(self.class_ids) - 1)

    def line(self, points: list[Point], colour: Colour, width: float) -> None:
        pixels = max(1, round(width))
        self.picture.line(points, fill=colour, width=pixels)
        self.objects.line(points, fill=len(self.class_ids) - 1, width=pixels)

    def wall_along(self, x: float, zs: Point, ys: Point) -> list[Point]:
        """The corners of an upright rectangle that runs along the road."""
        at = self.camera.project
        return [at(x, ys[0], zs[0]), at(x, ys[0], zs[1]), at(x, ys[1], zs[1]), at(x, ys[1], zs[0])]

    def wall_across(self, xs: Point, z: float, ys: Point) -> list[Point]:
        """The corners of an upright rectangle that faces the camera."""
        at = self.camera.project
        return [at(xs[0], ys[0], z), at(xs[1], ys[0], z), at(xs[1], ys[1], z), at(xs[0], ys[1], z)]

    def strip(self, xs: Point, zs: Point) -> list[Point]:
        """The corners of a rectangle that lies on the road."""
        at = self.camera.project
        return [at(xs[0], 0, zs[0]), at(xs[1], 0, zs[0]), at(xs[1], 0, zs[1]), at(xs[0], 0, zs[1])]


def shade(colour: Colour, factor: float) -> Colour:
    """The colour made darker (factor below 1) or lighter."""
    red, green, blue = colour
    return (
        min(255, int(red * factor)),
        min(255, int(green * factor)),
        min(255, int(blue * factor)),
    )


def near_colour(rng: random.Random, colour: Colour, spread: int) -> Colour:
    """A colour that differs from the given one by at most `spread` in each channel."""
    red, green, blue = (min(255, max(0, c + rng.randint(-spread, spread))) for c in colour)
    return red, green, blue


def choose_scene(seed: int, number: int) -> Scene:
    """The street that the pairs of this scene show."""
    rng = random.Random(f"scene {seed} {number}")
    light = rng.uniform(0.65, 1.1)
    bricks = [(150, 105, 85), (185, 170, 145), (120, 115, 112), (165, 140, 105), (205, 200, 190)]
    return Scene(
        light=light,
        haze=near_colour(rng, (212, 216, 222), 6),
        zenith=near_colour(rng, (125, 160, 205), 16),
        walls=tuple(near_colour(rng, rng.choice(bricks), 15) for _ in range(4)),
        leaves=near_colour(rng, (74, 88, 48), 10),
        kerb=rng.uniform(3.2, 5.0),
        pavement_width=rng.uniform(2.0, 3.5),
    )


@functools.lru_cache(maxsize=2)
def draw_noise(size: tuple[int, int]) -> np.ndarray:
    """Noise to cut textures from: (2h, 2w) int16 about 0, fine grain over coarse blotches.

    Made from `randbytes`, whose sequence Python keeps from version to version.
    """
    width, height = 2 * size[0], 2 * size[1]
    rng = random.Random("noise")
    total = np.zeros((height, width), np.float32)
    for cell, amplitude in ((1, 33), (3, 36), (9, 16), (40, 14)):
        shape = (height // cell + 2, width // cell + 2)
        grains = np.frombuffer(rng.randbytes(shape[0] * shape[1]), np.uint8).reshape(shape)
        layer = Image.fromarray(grains).resize((width, height), Image.Resampling.BILINEAR)
        total += (np.asarray(layer, np.float32) - 127.5) * (amplitude / 64)
    return total.astype(np.int16)


def cut_noise(rng: random.Random, size: tuple[int, int]) -> np.ndarray:
    """A piece of the noise: (h, w) int16."""
    width, height = size
    top, left = rng.randrange(height), rng.randrange(width)
    return draw_noise(size)[top : top + height, left : left + width]


def draw_sky(rng: random.Random, scene: Scene, size: tuple[int, int]) -> Image.Image:
    """An RGB picture of nothing but sky, with clouds."""
    down = np.linspace(0, 400, size[1], dtype=np.float32)[:, None]
    blotches = cut_noise(rng, size)[::16, ::16].astype(np.float32) + rng.uniform(-40, 40)
    clouds = Image.fromarray(blotches).resize(size, Image.Resampling.BICUBIC)
    white = np.maximum(np.asarray(clouds) * 2.8, down).clip(0, 255).astype(np.uint8)
    haze, zenith = Image.new("RGB", size, scene.haze), Image.new("RGB", size, scene.zenith)
    return Image.composite(haze, zenith, Image.fromarray(white))


def draw_ground(canvas: Canvas, scene: Scene, rng: random.Random) -> None:
    """The pavement, the road upon it, kerbs and lane marks."""
    grey = rng.randint(70, 110)
    stone = near_colour(rng, (150, 146, 140), 12)
    canvas.start_object(PAVEMENT)
    canvas.polygon(canvas.strip((-400, 400), (400, 0.5)), stone)
    canvas.start_object(ROAD)
    canvas.polygon(canvas.strip((-scene.kerb, scene.kerb), (400, 0.5)), (grey, grey, grey + 3))
    for side in (-1, 1):
        edge = (side * scene.kerb, side * (scene.kerb + 0.2))
        canvas.picture.polygon(canvas.strip(edge, (400, 0.5)), fill=shade(stone, 1.25))
        line = (side * (scene.kerb - 0.35), side * (scene.kerb - 0.5))
        canvas.picture.polygon(canvas.strip(line, (400, 0.5)), fill=(185, 165, 80))
    canvas.start_object(LANE_MARK)
    start = rng.uniform(0, 5)
    for step in range(9):
        z = 1.5 + start + 5 * step
        canvas.polygon(canvas.strip((-0.09, 0.09), (z + 2, z)), (225, 225, 220))
    if rng.random() < 0.3:
        draw_crossing(canvas, scene, rng.uniform(6, 14))


def draw_crossing(canvas: Canvas, scene: Scene, z: float) -> None:
    """A zebra crossing."""
    x = -scene.kerb + 0.6
    while x < scene.kerb - 0.8:
        canvas.polygon(canvas.strip((x, x + 0.5), (z + 2.5, z)), (215, 215, 212))
        x += 1.1


def draw_windows(canvas: Canvas, x: float, zs: Point, top: float, glass: Colour) -> None:
    """Rows of windows on a wall along the road; beyond 45 m they would be smaller than a pixel."""
    floors = int(top / 3)
    columns = int((zs[0] - zs[1]) / 2.6)
    for column in range(columns):
        z = zs[1] + 0.8 + 2.6 * column
        if z > 45:
            return
        for storey in range(floors):
            y = 0.9 + 3 * storey
            pane = canvas.wall_along(x, (z + 1.3, z), (y, y + 1.6))
            canvas.picture.polygon(pane, fill=glass, outline=(225, 222, 215) if z < 20 else None)


def draw_building(canvas: Canvas, scene: Scene, rng: random.Random, x: float, zs: Point) -> None:
    """One house: the wall that faces the camera, the wall along the road, its windows."""
    wall = near_colour(rng, rng.choice(scene.walls), 14)
    top = rng.uniform(6, 17)
    outward = x + math.copysign(9, x)
    lit = 0.75 if x > 0 else 1.0
    canvas.start_object(BUILDING)
    canvas.polygon(canvas.wall_across((x, outward), zs[1], (0, top)), shade(wall, 0.65))
    canvas.polygon(canvas.wall_along(x, zs, (0, top)), shade(wall, lit))
    band = canvas.wall_along(x, zs, (0, 0.6))
    canvas.picture.polygon(band, fill=shade(wall, lit * 0.6))
    roof = canvas.wall_along(x, zs, (top - 0.5, top))
    canvas.picture.polygon(roof, fill=shade(wall, lit * 1.25))
    draw_windows(canvas, x, zs, top - 0.6, near_colour(rng, (60, 72, 88), 16))


def draw_row_of_buildings(canvas: Canvas, scene: Scene, rng: random.Random, side: int) -> None:
    """One side of the street, from far to near, with gaps here and there."""
    x = side * (scene.kerb + scene.pavement_width)
    z = FARTHEST
    while z > NEAREST:
        near = max(NEAREST, z - rng.uniform(8, 18))
        if rng.random() < 0.8:
            draw_building(canvas, scene, rng, x + side * rng.uniform(0, 0.8), (z, near))
        elif z > 12:
            draw_tree(canvas, scene, rng, side * (scene.kerb + 6), (z + near) / 2)
        z = near - rng.choice((0, 0, 2.0))


def draw_tree(canvas: Canvas, scene: Scene, rng: random.Random, x: float, z: float) -> None:
    """A trunk, two boughs and a crown of many round clumps, lighter towards the top."""
    at, scale = canvas.camera.project, canvas.camera.focal / z
    height, spread = rng.uniform(5, 10), rng.uniform(1.3, 2.6)
    bark, leaves = near_colour(rng, (72, 58, 44), 10), near_colour(rng, scene.leaves, 14)
    canvas.start_object(TREE)
    fork = at(x, height * 0.45, z)
    canvas.line([at(x, 0, z), fork], bark, 0.3 * scale)
    for lean in (-0.6, 0.5):
        canvas.line([fork, at(x + lean * spread, height * 0.8, z)], bark, 0.15 * scale)
    for _ in range(26):
        angle, reach = rng.uniform(0, 2 * math.pi), math.sqrt(rng.random())
        up = math.sin(angle) * reach
        clump = at(x + math.cos(angle) * reach * spread, height * (0.72 + 0.28 * up), z)
        radius = rng.uniform(0.2, 0.55) * scale
        canvas.ellipse(clump, (radius, radius * 0.8), shade(leaves, 1 + 0.35 * up))


def draw_lamp(canvas: Canvas, rng: random.Random, x: float, z: float) -> None:
    """A lamp post whose arm reaches over the road."""
    at, scale = canvas.camera.project, canvas.camera.focal / z
    steel = near_colour(rng, (95, 98, 100), 20)
    height = rng.uniform(5.5, 8)
    arm = x - math.copysign(1.2, x)
    canvas.start_object(POLE)
    canvas.line([at(x, 0, z), at(x, height, z)], steel, 0.16 * scale)
    canvas.line([at(x, height, z), at(arm, height + 0.3, z)], steel, 0.1 * scale)
    canvas.ellipse(at(arm, height + 0.25, z), (0.35 * scale, 0.1 * scale), (225, 222, 200))


def draw_sign(canvas: Canvas, rng: random.Random, x: float, z: float) -> None:
    """A traffic sign, round or square, on its post."""
    at, scale = canvas.camera.project, canvas.camera.focal / z
    face = rng.choice(((190, 30, 35), (25, 70, 160), (215, 180, 40)))
    canvas.start_object(POLE)
    canvas.line([at(x, 0, z), at(x, 2.3, z)], (110, 112, 112), 0.1 * scale)
    canvas.start_object(SIGN)
    if rng.random() < 0.6:
        canvas.ellipse(at(x, 2.6, z), (0.42 * scale, 0.42 * scale), face)
        u, v = at(x, 2.6, z)
        inner = 0.26 * scale
        canvas.picture.ellipse((u - inner, v - inner, u + inner, v + inner), fill=(235, 235, 235))
    else:
        canvas.polygon(canvas.wall_across((x - 0.4, x + 0.4), z, (2.2, 3.3)), face)


def draw_fence(canvas: Canvas, rng: random.Random, x: float, zs: Point) -> None:
    """A railing along the kerb."""
    iron = near_colour(rng, (60, 66, 64), 14)
    canvas.start_object(FENCE)
    canvas.polygon(canvas.wall_along(x, zs, (0.1, 1.0)), shade(iron, 1.7))
    z = zs[0]
    while z > zs[1]:
        ends = [canvas.camera.project(x, 0.1, z), canvas.camera.project(x, 1.0, z)]
        canvas.picture.line(ends, fill=iron, width=max(1, round(10 / z)))
        z -= 0.5
    rail = canvas.wall_along(x, zs, (0.9, 1.0))
    canvas.picture.polygon(rail, fill=iron)


def draw_car(canvas: Canvas, rng: random.Random, x: float, z: float) -> None:
    """A car seen from behind: its shadow, body, cabin, wheels, lights and number plate."""
    paint = rng.choice(((150, 25, 30), (35, 50, 95), (190, 192, 195), (45, 47, 50), (60, 85, 70)))
    paint = near_colour(rng, paint, 15)
    half, length, inner = 0.85, rng.uniform(3.6, 4.6), x - math.copysign(0.85, x)
    canvas.picture.polygon(
        canvas.strip((x - 1.1, x + 1.1), (z + length, z - 0.3)), fill=(38, 38, 42)
    )
    canvas.start_object(CAR)
    sill, waist, roof = 0.25, rng.uniform(0.85, 1.0), rng.uniform(1.4, 1.75)
    canvas.polygon(canvas.wall_along(inner, (z + length, z), (sill, waist)), shade(paint, 0.8))
    cabin = inner + math.copysign(0.12, x)
    glass = (40, 48, 56)
    canvas.polygon(canvas.wall_along(cabin, (z + length * 0.7, z + 0.3), (waist, roof)), glass)
    for wheel in (z + 0.8, z + length - 0.8):
        scale = canvas.camera.focal / wheel
        across = max(1.0, 0.33 * scale * abs(inner) / wheel)
        canvas.ellipse(
            canvas.camera.project(inner, 0.3, wheel), (across, 0.32 * scale), (22, 22, 24)
        )
    canvas.polygon(
        canvas.wall_across((x - 0.72, x + 0.72), z + 0.3, (waist, roof)), shade(paint, 0.9)
    )
    canvas.picture.polygon(
        canvas.wall_across((x - 0.6, x + 0.6), z + 0.3, (waist, roof - 0.12)), fill=glass
    )
    canvas.polygon(canvas.wall_across((x - half, x + half), z, (sill, waist)), paint)
    draw_back_of_car(canvas, x, z, waist)


def draw_back_of_car(canvas: Canvas, x: float, z: float, waist: float) -> None:
    """Tyres, tail lights, bumper and number plate."""
    parts: tuple[tuple[Point, Point, Colour], ...] = (
        ((-0.8, -0.55), (0.0, 0.27), (20, 20, 22)),
        ((0.55, 0.8), (0.0, 0.27), (20, 20, 22)),
        ((-0.85, 0.85), (0.25, 0.42), (48, 48, 50)),
        ((-0.83, -0.6), (waist - 0.3, waist - 0.08), (200, 40, 35)),
        ((0.6, 0.83), (waist - 0.3, waist - 0.08), (200, 40, 35)),
        ((-0.26, 0.26), (0.45, 0.57), (225, 205, 90)),
    )
    for (left, right), ys, colour in parts:
        canvas.polygon(canvas.wall_across((x + left, x + right), z, ys), colour)


def draw_pedestrian(canvas: Canvas, rng: random.Random, x: float, z: float) -> None:
    """Somebody who walks: legs, coat, arms, head."""
    at, scale = canvas.camera.project, canvas.camera.focal / z
    tall = rng.uniform(0.85, 1.1)
    coat = near_colour(
        rng, rng.choice(((140, 40, 45), (50, 60, 110), (60, 60, 62), (175, 160, 130))), 20
    )
    trousers = near_colour(rng, (45, 48, 62), 15)
    stride = rng.uniform(0.08, 0.3)
    canvas.start_object(PEDESTRIAN)
    for foot in (-stride, stride):
        canvas.line([at(x + foot, 0, z), at(x, 0.85 * tall, z)], trousers, 0.17 * scale)
    for arm in (-0.3, 0.28):
        ends = [at(x + arm, 0.8 * tall, z), at(x + arm * 0.6, 1.35 * tall, z)]
        canvas.line(ends, shade(coat, 0.8), 0.12 * scale)
    canvas.polygon(canvas.wall_across((x - 0.21, x + 0.21), z, (0.75 * tall, 1.42 * tall)), coat)
    canvas.ellipse(at(x, 1.58 * tall, z), (0.11 * scale, 0.15 * scale), (196, 152, 128))


def draw_things(canvas: Canvas, scene: Scene, rng: random.Random) -> None:
    """All that stands on road and pavement, from far to near, so that the near hides the far."""
    beside = scene.kerb + 0.7
    for z in sorted((rng.uniform(5.5, 45) for _ in range(rng.randint(12, 20))), reverse=True):
        side = rng.choice((-1, 1))
        thing = rng.choice("ccccppptllsf")
        if thing == "c":
            lane = scene.kerb - 1.2 if rng.random() < 0.75 else 1.4
            draw_car(canvas, rng, side * lane, z)
        elif thing == "p":
            draw_pedestrian(canvas, rng, side * rng.uniform(scene.kerb, beside + 1.5), z)
        elif thing == "t":
            draw_tree(canvas, scene, rng, side * (beside + 0.6), z)
        elif thing == "l":
            draw_lamp(canvas, rng, side * beside, z)
        elif thing == "s":
            draw_sign(canvas, rng, side * beside, z)
        else:
            draw_fence(canvas, rng, side * (scene.kerb + 0.3), (z + rng.uniform(4, 10), z))


def add_texture(picture: np.ndarray, roughness: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """The picture, (h, w, 3) uint8, made as rough as each pixel's object is.

    `roughness` is (h, w) int16 in 1/64, `noise` (h, w) int16; a new array comes back.
    """
    grain = (roughness * noise) >> 6
    return np.clip(picture + grain[:, :, None], 0, 255).astype(np.uint8)


def mark_borders(objects: np.ndarray, mask: np.ndarray) -> None:
    """Sets the two pixels at every border between objects to VOID; both arrays (h, w) uint8."""
    across = objects[:, 1:] != objects[:, :-1]
    down = objects[1:] != objects[:-1]
    mask[:, 1:][across] = VOID
    mask[:, :-1][across] = VOID
    mask[1:][down] = VOID
    mask[:-1][down] = VOID


def draw_pair(
    seed: int, index: int, size: tuple[int, int] = DEFAULT_SIZE
) -> tuple[np.ndarray, np.ndarray]:
    """One street.

    Args:
      seed: which world of streets.
      index: the pair's number, from 0; ten in a row are of one scene.
      size: width and height in pixels.

    Returns:
      The picture, (h, w, 3) uint8, and its mask, (h, w) uint8: numbers of CLASSES, or VOID on
      the borders between objects.
    """
    width, height = size
    rng = random.Random(f"pair {seed} {index}")
    scene = choose_scene(seed, index // PAIRS_A_SCENE)
    camera = Camera(width * rng.uniform(0.4, 0.6), height * rng.uniform(0.4, 0.52), 0.85 * width)
    picture, objects = draw_sky(rng, scene, size), Image.new("L", size)
    canvas = Canvas(camera, ImageDraw.Draw(picture), ImageDraw.Draw(objects))
    draw_ground(canvas, scene, rng)
    for side in (-1, 1):
        draw_row_of_buildings(canvas, scene, rng, side)
    draw_things(canvas, scene, rng)
    numbers = np.asarray(objects)
    class_ids = np.array(canvas.class_ids, np.uint8)
    mask = class_ids[numbers]
    roughness = np.array(ROUGHNESS, np.int16)[class_ids][numbers]
    lit = picture.point([min(255, int(v * scene.light)) for v in range(256)] * 3)
    textured = add_texture(np.asarray(lit), roughness, cut_noise(rng, size))
    mark_borders(numbers, mask)
    return textured, mask


@functools.cache
def voc_palette() -> list[int]:
    """PASCAL VOC's colours, 256 times red, green, blue (VOCdevkit, VOClabelcolormap.m).

    The bits of the id, from the lowest, go in turn to red, green and blue, highest bit first.
    """
    palette = []
    for class_id in range(256):
        channels = [0, 0, 0]
        for bit in range(8):
            channels[bit % 3] |= (class_id >> bit & 1) << (7 - bit // 3)
        palette += channels
    return palette


def save_pair(out: Path, index: int, *, seed: int, size: tuple[int, int], quality: int) -> None:
    """Draws a pair and writes its two files."""
    picture, mask = draw_pair(seed, index, size)
    image_path, mask_path = (out / name for name in name_files(index))
    Image.fromarray(picture).save(image_path, quality=quality)
    indexed = Image.fromarray(mask)
    indexed.putpalette(voc_palette())
    indexed.save(mask_path)


def name_files(index: int) -> tuple[str, str]:
    """The image's and the mask's path under the output folder, with '/'."""
    return f"images/{index:06d}.jpg", f"masks/{index:06d}.png"


def write_lists(out: Path, pairs: int) -> None:
    """Writes the manifest and the names of the classes, the id being the line's number from 0."""
    with (out / "pairs.csv").open("w", encoding="utf-8", newline="") as stream:
        rows = csv.writer(stream, lineterminator="\n")
        rows.writerow(("image", "mask", "scene"))
        rows.writerows(
            (*name_files(index), f"street-{index // PAIRS_A_SCENE:05d}") for index in range(pairs)
        )
    (out / "classes.txt").write_text("".join(f"{name}\n" for name in CLASSES), encoding="utf-8")


def draw_pairs(
    out: Path, pairs: int, *, seed: int, size: tuple[int, int], quality: int, jobs: int
) -> None:
    """Writes the whole data set with this many processes."""
    for folder in ("images", "masks"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    save = functools.partial(save_pair, out, seed=seed, size=size, quality=quality)
    if jobs == 1:
        for index in range(pairs):
            save(index)
    else:
        with multiprocessing.Pool(jobs) as pool:
            pool.map(save, range(pairs), chunksize=16)
    write_lists(out, pairs)


def parse_size(text: str) -> tuple[int, int]:
    """'480x360' → (480, 360)."""
    width, height = (int(part) for part in text.lower().replace("×", "x").split("x"))
    if min(width, height) < 32:
        raise ValueError(text)
    return width, height


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to write to")
    parser.add_argument("--pairs", type=int, default=200, help="how many (default %(default)s)")
    parser.add_argument(
        "--size",
        type=parse_size,
        default=DEFAULT_SIZE,
        metavar="WxH",
        help="in pixels, at least 32x32 (default 480x360)",
    )
    parser.add_argument(
        "--quality", type=int, default=DEFAULT_QUALITY, help="of the JPEGs (default %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="default %(default)s")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)"
    )
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    options = parse_arguments(argv)
    started = time.perf_counter()
    draw_pairs(
        options.out,
        options.pairs,
        seed=options.seed,
        size=options.size,
        quality=options.quality,
        jobs=options.jobs,
    )
    seconds = time.perf_counter() - started
    print(f"{options.pairs} pairs drawn in {seconds:.1f} s: {options.out / 'pairs.csv'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
