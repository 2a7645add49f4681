import pytest

from hack import crd
from tests.model.policies import policy
from webhook.model.policy.rules import RULES, SCALED_KINDS, SERVICES, TEAM_RULES


def _nodes(node):
    yield node
    for inner in (*node.get("properties", {}).values(), node.get("items"), _others(node)):
        if inner is not None:
            yield from _nodes(inner)


def _others(node):
    return node.get("additionalProperties")


of_each = pytest.mark.parametrize("definition", crd.DEFINITIONS, ids=lambda each: each.plural)


@of_each
def test_the_charts_crd_is_the_generated_one(definition):
    assert definition.target.read_text() == crd.text(definition)


@of_each
def test_every_text_list_and_map_of_the_spec_has_an_upper_bound(definition):
    spec = crd.schema(definition)["properties"]["spec"]
    unbounded = [
        node
        for node in _nodes(spec)
        if (node.get("type") == "string" and not {"maxLength", "enum"} & set(node))
        or (node.get("type") == "array" and "maxItems" not in node)
        or ("additionalProperties" in node and "maxProperties" not in node)
    ]

    assert unbounded == []


@of_each
def test_every_field_of_the_spec_is_described(definition):
    spec = crd.schema(definition)["properties"]["spec"]
    silent = [
        name
        for node in _nodes(spec)
        for name, inner in node.get("properties", {}).items()
        if not inner.get("description")
    ]

    assert silent == []


def test_every_rule_stands_in_the_schema():
    written = {
        (item["rule"], item.get("fieldPath", ""))
        for definition in crd.DEFINITIONS
        for node in _nodes(crd.schema(definition))
        for item in node.get("x-kubernetes-validations", ())
    }

    every = [rule for table in (RULES, TEAM_RULES) for rules in table.values() for rule in rules]
    assert written == {(rule.fact.cel, rule.field) for rule in every if rule.fact.cel}
    # CEL cannot read `replicas`, which is a text or a map.
    assert [rule.message for rule in every if not rule.fact.cel] == [
        "replicas Auto may be given only with strategy.type: Cost",
        f"replicas Auto may be set only if match.kinds names no kinds but {', '.join(SERVICES)}",
        f"replicas may be set only if match.kinds names no kinds but {', '.join(SCALED_KINDS)}",
        "may only be given for those in podSets",
    ]


def test_replicas_are_stored_as_given_whether_a_text_or_a_map():
    option = crd.schema()["properties"]["spec"]["properties"]["options"]["items"]
    replicas = option["properties"]["adaptation"]["properties"]["replicas"]

    assert {key: value for key, value in replicas.items() if key != "description"} == {
        "pattern": "^Auto$",
        "maxProperties": 18,
        "x-kubernetes-preserve-unknown-fields": True,
    }


@of_each
def test_the_schema_holds_no_reference_union_or_title(definition):
    nodes = list(_nodes(crd.schema(definition)))

    assert not any({"$ref", "$defs", "anyOf", "oneOf", "title"} & set(node) for node in nodes)


def test_an_example_of_a_policy_has_only_fields_of_the_schema():
    spec = crd.schema()["properties"]["spec"]

    assert set(policy()["spec"]) <= set(spec["properties"])
