"""Constants that scripts use."""

TAB = " " * 4
DEFAULT_SHAPE_VALUE = 1
MARK_ALL = "mark-all"
LEGACY_TYPE_MARKER = "polygraphy_serialized_json_type"
TYPE_MARKER = "polygraphy_class"
