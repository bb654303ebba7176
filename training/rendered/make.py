"""python -m training.rendered.make --out VIEWS --scenes FOLDER: render views of free 3D scenes for the training of the matcher."""

from __future__ import annotations

import argparse
import sys
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from training.commands import command
from training.photographs import NoPhotographsError, load_photographs
from training.rendered import gazebo, retexture, viewpoints
from training.rendered.check import View, check_scene
from training.rendered.packing import Pack, millimetres
from training.rendered.raycast import Camera, Exposure, Scene, exposed
from training.rendered.sources import LIST, Entry, RenderError, Source, fetch, load_list, source_of

OBJECTS = 'tmc_wrs_gazebo'  # the source of objects that stand around
POOL = 20  # photographs for one scene
FAILURES = 60  # clusters drawn in vain, one after another, after which a scene is left out
BRIGHTNESS = (95.0, 140.0)  # mean gray level of an anchor
CONTRAST = (40.0, 60.0)  # standard deviation of gray levels that dull anchors are brought to


@dataclass(frozen=True)
class Options:
    """What the scenes have in common."""

    folder: Path
    objects: Source | None
    seed: int


def render_scene(entry: Entry, clusters: int, photographs: NDArray[np.uint8], options: Options) -> tuple[str, list[View]]:
    """Render the clusters of one scene and check them.

    Returns:
        A line for the log, and the views.

    Raises:
        RenderError: the scene has no mesh or no texture, no viewpoint is accepted, or depth and pose do not fit the images.

    """
    started = time.monotonic()
    random = np.random.default_rng([options.seed, zlib.crc32(entry.name.encode())])
    root = options.folder / entry.source.name
    world = gazebo.load_world(entry.name, root / entry.world, [root / entry.source.models])
    box = gazebo.bounds(world)
    world = retexture.retexture(world, photographs, entry.retexture, random)
    targets = np.zeros((0, 3))
    if entry.objects and options.objects:
        models = options.folder / options.objects.name / options.objects.models
        world, targets = retexture.put_objects(world, box, models, entry.objects, random)
    gazebo.require_texture(entry.name, world)
    scene = Scene(world)
    views: list[View] = []
    failures = 0
    while len(views) < clusters * viewpoints.VIEWS:
        cluster = render_cluster(scene, box, targets, random)
        failures = 0 if cluster else failures + 1
        if failures == FAILURES:
            raise RenderError(f'{entry.name}: {FAILURES} clusters one after another lack viewpoints in free space with at least '
                              f'{viewpoints.CORNERS} corners. It is too empty or too plain: give --photographs, or leave it out.')
        number = len(views)
        views += [View(f'{number + i:04d}', number // viewpoints.VIEWS, camera, image, depth)
                  for i, (camera, image, depth) in enumerate(cluster)]
    found = check_scene(entry.name, views)
    missing = f', missing: {len(set(world.missing))} models' if world.missing else ''
    return (f'{entry.name}: {world.count} triangles, {len(scene.textures.start)} textures, '
            f'{len(targets)} groups of objects{missing}; {len(views)} views in {time.monotonic() - started:.0f} s; '
            f'correlation {found.correlation:.3f}, co-visible {found.covisible:.0%}, '
            f'flow {" / ".join(f"{pixels:.0f}" for pixels in found.flow)} px'), views


Rendered = tuple[Camera, NDArray[np.uint8], NDArray[np.uint16]]


def render_cluster(scene: Scene, box: tuple[NDArray[np.float64], NDArray[np.float64]], targets: NDArray[np.float64],
                   random: np.random.Generator) -> list[Rendered]:
    """An anchor and the views around it; empty where the anchor or too many of the others are refused."""
    anchor = viewpoints.draw_anchor(scene, box, targets, random)
    if anchor is None:
        return []
    lights = viewpoints.draw_lights(scene, anchor, random)
    ambient = random.uniform(0.2, 0.6)
    exposure: Exposure | None = None
    views: list[Rendered] = []
    for attempt in range(2 * viewpoints.VIEWS):
        camera = anchor if not attempt else viewpoints.draw_neighbour(scene, anchor, float(box[0][2]), random)
        if camera is None:
            return []
        radiance = scene.radiance(camera, lights, ambient)
        exposure = exposure or Exposure.of(radiance, random.uniform(*BRIGHTNESS), random.uniform(*CONTRAST))
        image = exposed(radiance, exposure)
        if viewpoints.corners(image) >= viewpoints.CORNERS:
            views.append((camera, image, millimetres(scene.depth(camera))))
        elif not attempt:
            return []
        if len(views) == viewpoints.VIEWS:
            return views
    return []


def _all(entries: list[Entry], views: int, photographs: NDArray[np.uint8], options: Options,
         workers: int) -> Iterator[tuple[Entry, list[View]]]:
    """Render the scenes, print a line for each, and leave out the scenes that cannot be used."""
    total = sum(entry.weight for entry in entries)
    shares = [max(round(views * entry.weight / total / viewpoints.VIEWS), 1) for entry in entries]
    with ProcessPoolExecutor(workers) as pool:
        random = np.random.default_rng(options.seed)
        tasks = [pool.submit(render_scene, entry, share, photographs[random.permutation(len(photographs))[:POOL]], options)
                 for entry, share in zip(entries, shares, strict=True)]
        for entry, task in zip(entries, tasks, strict=True):
            try:
                line, rendered = task.result()
            except RenderError as error:
                print(f'left out: {error}', flush=True)
                continue
            print(line, flush=True)
            yield entry, rendered


def sheet(images: list[NDArray[np.uint8]], columns: int = 6) -> NDArray[np.uint8]:
    """A contact sheet of images at half their size."""
    small = [np.asarray(cv2.resize(image, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA), np.uint8) for image in images]
    small += [np.zeros_like(small[0])] * (-len(small) % columns)
    return np.vstack([np.hstack(small[i:i + columns]) for i in range(0, len(small), columns)])


@command('error', RenderError, NoPhotographsError)
def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog='python -m training.rendered.make', description=__doc__)
    parser.add_argument('--out', type=Path, required=True, help='where views.NN.tar and sheet.png are written')
    parser.add_argument('--scenes', type=Path, required=True, help='a folder of repositories; git fetches missing ones')
    parser.add_argument('--photographs', type=Path, help='a folder of photographs.NN.tar, for plain surfaces')
    parser.add_argument('--views', type=int, default=600)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--only', nargs='+', default=[], metavar='NAME', help='these scenes only')
    parser.add_argument('--workers', type=int, default=1, help='processes')
    parser.add_argument('--list', type=Path, default=LIST, help='the list of scenes')
    chosen = parser.parse_args(arguments)
    listed = load_list(chosen.list)
    if unknown := set(chosen.only) - {entry.name for entry in listed}:
        raise RenderError(f'--only {" ".join(sorted(unknown))}: {chosen.list} has no such scene.')
    entries = [entry for entry in listed if not chosen.only or entry.name in chosen.only]
    objects = source_of(OBJECTS, listed)
    for source in {entry.source.name: entry.source for entry in entries}.values():
        fetch(source, chosen.scenes)
    if objects and any(entry.objects for entry in entries):
        fetch(objects, chosen.scenes)
    photographs = load_photographs(chosen.photographs)[0] if chosen.photographs else np.zeros((0, 1, 1), np.uint8)
    pack = Pack(chosen.out)
    anchors, count = [], 0
    options = Options(chosen.scenes, objects, chosen.seed)
    for entry, views in _all(entries, chosen.views, photographs, options, chosen.workers):
        count += len(views)
        for _, cluster in groupby(views, key=lambda view: view.cluster):
            group = list(cluster)
            pack.add(entry.name, group)
            anchors += [group[0].image, group[1].image]
    if not count:
        raise RenderError('no scene can be used: the lines above say why.')
    temporary = chosen.out / 'sheet.tmp.png'
    cv2.imwrite(str(temporary), sheet(anchors))
    temporary.replace(chosen.out / 'sheet.png')
    parts = pack.finish()
    print(f'{count} views in {len(parts)} parts, {sum(part.stat().st_size for part in parts) / 2**20:.0f} MiB')
    return 0


if __name__ == '__main__':
    sys.exit(main())
