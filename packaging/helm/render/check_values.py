"""Checks a chart's values against its schema, as `helm lint` does.

usage: check_values.py CHART [VALUES…]
"""

import json
import pathlib
import sys

import jsonschema
import yaml


def merge(into, override):
    """Writes the values of `override` to `into`, and merges objects."""
    for key, value in override.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = value


chart = pathlib.Path(sys.argv[1])
values = {}
for file in [chart / "values.yaml", *map(pathlib.Path, sys.argv[2:])]:
    merge(values, yaml.safe_load(file.read_text()))
schema = json.loads((chart / "values.schema.json").read_text())
jsonschema.validate(values, schema)
