"""Mean average precision at IoU 0.5 of boxes (x0, y0, x1, y1), with the golden boxes as the truth: over all samples."""

import numpy as np


def _iou(box, others):
    low = np.maximum(box[:2], others[:, :2])
    high = np.minimum(box[2:], others[:, 2:])
    both = np.prod(np.clip(high - low, 0, None), axis=1)
    areas = np.prod(others[:, 2:] - others[:, :2], axis=1)
    return both / (np.prod(box[2:] - box[:2]) + areas - both)


def metric(golden, candidate):
    truth = [sample["boxes"][sample["scores"] > 0.5] for sample in golden]
    found = [np.zeros(len(boxes), bool) for boxes in truth]
    detections = sorted(
        ((score, sample, box) for sample, outputs in enumerate(candidate) for score, box in zip(outputs["scores"], outputs["boxes"])),
        key=lambda detection: -detection[0],
    )
    hits = []
    for _, sample, box in detections:
        overlap = _iou(box, truth[sample]) if len(truth[sample]) else np.zeros(0)
        overlap[found[sample]] = 0
        hit = overlap.size > 0 and overlap.max() >= 0.5
        if hit:
            found[sample][overlap.argmax()] = True
        hits.append(hit)
    positives = sum(map(len, truth))
    precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    return float(np.sum(precision * hits) / max(positives, 1))


metric.higher_is_better = True
