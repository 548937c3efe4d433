// What two answers say of the same layers, and the casts of a typed model.

function differences(a, b) {
  const names = [...a.kept.keys(), ...[...b.kept.keys()].filter((name) => !a.kept.has(name))];
  const rows = [];
  for (const name of names) {
    const [first, second] = [a.kept.get(name), b.kept.get(name)];
    if (first && second && first.precision === second.precision) continue;
    const layer = a.byName.get(name) ?? b.byName.get(name);
    rows.push({
      name,
      op: layer.op,
      row: layer.row,
      first,
      second,
      kind: !second ? "only A" :
          !first    ? "only B" :
                      "other precision",
      precisions: [a, b].map((answer) => answer.byName.get(name)?.precision ?? null)
    });
  }
  return rows.sort((x, y) => x.row - y.row);
}

function showDifferences(place, a, b) {
  const rows = differences(a, b);
  if (!rows.length) {
    place.append(make("p", {class: "empty"}, "None: both keep the same layers in the same precisions."));
    return;
  }
  const side = (index) => (row) => {
    const kept = [row.first, row.second][index];
    return [
      kept ? make("b", {}, kept.precision) : row.precisions[index] ?? "–",
      kept ? make("small", {}, ` ${kept.reason.kind}`) : ""
    ];
  };
  const rank = (index) => (row) => RANK[row.precisions[index]] ?? null;
  new Table(place, rows, {
    label: "difference",
    stem: "differences",
    size: 5,
    text: (row) => `${row.name} ${row.op} ${row.first?.reason.kind ?? ""} ${row.second?.reason.kind ?? ""}`,
    record: (row) => ({
      name: row.name,
      op: row.op,
      difference: row.kind,
      precision_a: row.precisions[0],
      precision_b: row.precisions[1],
      reason_a: row.first?.reason.kind ?? null,
      reason_b: row.second?.reason.kind ?? null
    }),
    columns: [
      {
        title: "Layer",
        value: (row) => row.row,
        cell: (row) => [make("span", {class: "name", title: row.name}, breakable(row.name)), make("small", {}, ` ${row.op}`)]
      },
      {title: "A", value: rank(0), cell: side(0)},
      {title: "B", value: rank(1), cell: side(1)},
      {title: "Kept in", value: (row) => row.kind, cell: (row) => [row.kind === "other precision" ? "both" : row.kind]},
    ],
    filters: [{
      title: "Show",
      all: "all",
      options: () => naturally(rows.map((row) => row.kind)),
      has: (row, value) => row.kind === value
    }],
  });
}

function showCasts(place, casts) {
  const known = casts.some((cast) => cast.origin);
  new Table(place, casts, {
    label: "cast",
    stem: "casts",
    size: 5,
    text: (cast) => [cast.name, cast.producer, ...cast.readers].join(" "),
    record: (cast) => ({
      name: cast.name,
      origin: cast.origin,
      from: cast.from,
      to: cast.to,
      after: cast.producer,
      before: cast.readers.join(" ")
    }),
    columns: [
      {
        title: "Cast",
        value: (cast) => casts.indexOf(cast),
        cell: (cast) => [make("span", {class: "name", title: cast.name}, breakable(cast.name))]
      },
      ...(known ? [{title: "Origin", value: (cast) => cast.origin, cell: (cast) => [cast.origin]}] : []),
      {title: "Types", value: (cast) => `${cast.from} ${cast.to}`, cell: (cast) => [`${cast.from} → ${cast.to}`]},
      {title: "After", cell: (cast) => [make("code", {}, breakable(cast.producer))]},
      {
        title: "Before",
        cell: (cast) => [make("code", {}, breakable(cast.readers.slice(0, 3).join(", "))),
            cast.readers.length > 3 ? ` and ${cast.readers.length - 3} more` : ""]
      },
    ],
    filters: [
      {
        title: "Types",
        all: "any",
        options: () => naturally(casts.map((cast) => `${cast.from} → ${cast.to}`)),
        has: (cast, value) => `${cast.from} → ${cast.to}` === value
      },
      ...(known ? [{
        title: "Origin",
        all: "any",
        options: () => naturally(casts.map((cast) => cast.origin)),
        has: (cast, value) => cast.origin === value
      }] :
                  [])
    ],
  });
}
