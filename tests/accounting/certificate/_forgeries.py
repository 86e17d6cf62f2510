"""Forgeries of certificates: each edits one, and then makes every digest fit that anybody can compute."""

from __future__ import annotations

import copy
import hashlib
import json
import math
from fractions import Fraction

from opendp_sim.accounting.certificate.check_certificate import (
    canonical,
    curve_at,
    least_number,
    normal_quantile,
    normal_tail,
    zcdp_epsilon,
)


def at(c, path, value):
    """Set what stands at a path, or change it by a function."""
    *names, last = path
    for name in names:
        c = c[name]
    c[last] = value(c[last]) if callable(value) else value


def put(path, value):
    """Return an edit of one place; a path is words with points between, numbers for places."""
    steps = [int(s) if s.lstrip("-").isdigit() else s for s in path.split(".")]
    return lambda c: at(c, steps, value)


def both(*edits):
    def edit(c):
        for one in edits:
            one(c)

    return edit


def times(factor):
    return lambda value: value * factor


def fix(c):
    """Make digests and repeated numbers fit the plan and the program."""
    digest = hashlib.sha256(canonical(c["program"]).encode()).hexdigest()
    c["plan"]["program"] = c["privacy"]["program"] = digest
    for name in ("total", "claim"):
        c["privacy"][name] = c["plan"][name]
    c["privacy"]["d_in"] = c["plan"]["privacy"]["d_in"]
    c["privacy"]["unit"] = c["plan"]["privacy"]["unit"]


def rescaled(c, factor, release):
    """Multiply a release's loss, and carry it through total, claim, curve and attackers."""
    plan = c["plan"]
    r = plan["releases"][release]
    r["own"]["loss"][0] *= factor
    r["loss"][0] *= factor
    losses = [x["loss"] for x in plan["releases"].values() if x["loss"]]
    plan["total"] = [math.fsum(parts) for parts in zip(*losses, strict=True)]
    retold(plan)


def retold(plan):
    """Derive everything after the total again."""
    total, delta, g = plan["total"], plan["conversion_delta"], plan["gaussian"]
    if g is not None:
        square = 2 * Fraction(total[0])
        g.update(mu_squared=str(square), by_types=str(square))
        g["epsilon_by_zcdp"] = zcdp_epsilon(total[0], delta)
        mu = math.sqrt(square)
        plan["claim"] = [least_number(lambda e: curve_at(2 * total[0], e) <= delta), delta]
        for who in plan["attackers"].values():
            who["advantage"] = 1 - 2 * normal_tail(mu / 2)
            for rate in who["tpr_at_fpr"]:
                who["tpr_at_fpr"][rate] = normal_tail(normal_quantile(float(rate)) - mu)
    elif delta is not None:
        extra = total[1] if len(total) > 1 else 0.0
        plan["claim"] = [zcdp_epsilon(total[0], delta), delta + extra]
    else:
        slope, own = math.exp(total[0]), total[1] if len(total) > 1 else 0.0
        for who in plan["attackers"].values():
            who["advantage"] = (slope - 1 + 2 * own) / (slope + 1)
            for rate in who["tpr_at_fpr"]:
                q = float(rate)
                who["tpr_at_fpr"][rate] = min(1.0, slope * q + own, 1 - (1 - own - q) / slope)


def halved_sensitivity(c):
    """Half the sensitivity everywhere, and a quarter of the loss."""
    plan, r = c["plan"], c["plan"]["releases"]["noisy"]
    r["maps"][-1][1] /= 2
    for stage in plan["stages"].values():
        for norm in ("l1", "l2", "linf") if stage["faces"] else ():
            stage["faces"][norm] /= 2
    if "derivation" in c:
        *_, sketch, last = c["derivation"]["noisy"]
        last["inputs"]["distance"] /= 2
        for block in sketch["inputs"]["blocks"]:
            block[2:5] = [str(int(v) // 2) for v in block[2:5]]
    rescaled(c, 0.25, "noisy")


def larger_scale(c):
    """Twice the noise that was drawn, told consistently."""
    ((_, p),) = c["plan"]["releases"]["noisy"]["mechanism"].items()
    p["scale"] *= 2
    rescaled(c, 0.25, "noisy")


def no_persons(c):
    """Rows bounded to two a person counted as one."""
    plan, r = c["plan"], c["plan"]["releases"]["noisy"]
    r["maps"] = [[step, d // 2] for step, d in r["maps"]]
    for stage in plan["stages"].values():
        stage["stability"] = 1
        for norm in ("l1", "l2", "linf") if stage["faces"] else ():
            stage["faces"][norm] /= 2
    c["derivation"]["noisy"][0]["factor"] = "1"
    c["derivation"]["noisy"][-1]["inputs"]["distance"] //= 2
    r["own"]["loss"], r["loss"], plan["total"] = [1.0], [1.0], [1.0]


def one_row_a_person(c):
    """The same with a program that keeps one row, whose release kept two."""
    for step in c["program"]["flow"]["vectors"]["steps"]:
        if "bound_contributions" in step:
            step["bound_contributions"]["max_rows"] = 1
    no_persons(c)
    c["plan"]["privacy"]["budget"]["epsilon"] = c["program"]["privacy"]["budget"]["epsilon"] = 1.0
    retold(c["plan"])


def dropped(c, release="peeled", *, program=False):
    """Leave a release out, and lower the total."""
    plan = c["plan"]
    plan["releases"].pop(release)
    c["derivation"].pop(release)
    if program:
        plan["stages"].pop(release)
        c["program"]["flow"].pop(release)
        for outputs in (plan["outputs"], c["program"]["outputs"]):
            for name in [n for n, o in outputs.items() if o["from"] == release]:
                outputs.pop(name)
    losses = [r["loss"] for r in plan["releases"].values()]
    plan["total"] = [math.fsum(parts) for parts in zip(*losses, strict=True)]
    retold(plan)


def step(stage, key):
    """Return the place of a step's parameters."""

    def params(c):
        return next(s[key] for s in c["program"]["flow"][stage]["steps"] if key in s)

    return params


def stepped(stage, key, **values):
    return lambda c: step(stage, key)(c).update(values)


N = "plan.releases.noisy"
RACE, PERSONS, SELECT, LINEAR, VOTES = (
    "digit-density",
    "writers-density",
    "bright-pixels-published",
    "digits-linear",
    "teacher-votes",
)
BY_ARITHMETIC = {
    # name: (spec, edit, whether digests are made to fit)
    # The prototype's 22 kinds.
    "claim lower": (RACE, put("plan.claim.0", 0.9), True),
    "total lower": (RACE, put("plan.total.0", times(0.9)), True),
    "scale larger in the plan": (RACE, put(f"{N}.mechanism.rounded_gaussian.scale", 176.0), True),
    "sensitivity halved everywhere": (RACE, halved_sensitivity, True),
    "sensitivity halved, losses kept": (
        RACE,
        both(put(f"{N}.maps.-1.1", times(0.5)), put("plan.stages.noisy.faces.l2", times(0.5))),
        True,
    ),
    "unit renamed in the claim": (RACE, put("privacy.unit.of", "person"), False),
    "rows told as persons everywhere": (
        RACE,
        both(
            *(put(f"{p}.unit.of", "person") for p in ("privacy", "plan.privacy", "program.privacy"))
        ),
        True,
    ),
    "distance 0": (PERSONS, put("plan.privacy.d_in", 0), True),
    "another file": (RACE, put("file.sha256", "0" * 64), "file"),
    "program changed, digest stale": (RACE, put("program.name", "other"), False),
    "delta smaller": (
        RACE,
        both(put("plan.conversion_delta", 1e-7), put("plan.claim.1", 1e-7)),
        True,
    ),
    "a release left out": (SELECT, lambda c: c["plan"]["releases"].pop("peeled"), True),
    "a release left out, total lower": (SELECT, dropped, True),
    "a selection's loss a tenth": (SELECT, lambda c: rescaled(c, 0.1, "stable"), True),
    "no assumptions": (RACE, put("assumptions", []), False),
    "evidence invented": (
        RACE,
        lambda c: [e.update(tier="checked by Lean") for e in c["evidence"].values()],
        False,
    ),
    "weaker attackers": (RACE, put("plan.attackers.unit.advantage", times(0.1)), False),
    "a number spelt otherwise": (RACE, "spelling", False),
    "a field more": (RACE, lambda c: c.update(note="x"), False),
    "persons' rows counted once": (PERSONS, no_persons, True),
    "repetitions raised, sensitivity kept": (
        RACE,
        stepped("sketch", "race_sketch", repetitions=4000),
        True,
    ),
    "a model's loss a quarter": (LINEAR, lambda c: rescaled(c, 0.25, "model"), True),
    # Further kinds.
    "noise larger, told consistently": (RACE, larger_scale, True),
    "the wrong norm": (RACE, put(f"{N}.norm", "linf"), True),
    "discrete noise under the Gaussian curve": (
        RACE,
        lambda c: (
            at(
                c,
                ["plan", "releases", "noisy", "mechanism"],
                {"gaussian": {"sampler": "auto", "scale": 88.21388501260712}},
            ),
            at(
                c,
                ["program", "flow", "noisy", "release"],
                {"noise": "gaussian", "sampler": "auto", "scale": "solve", "spend": "1"},
            ),
            [
                line.update(step="gaussian", formula="gaussian/1")
                for line in c["derivation"]["noisy"][-1:]
            ],
            [m.update(key="gaussian") for m in c["mechanisms"] if m["key"] == "rounded_gaussian"],
            c["evidence"].update(gaussian=c["evidence"].pop("rounded_gaussian")),
        ),
        True,
    ),
    "a later release of the former format's loss": (
        RACE,
        put("format", "opendp_sim/certificate/2"),
        False,
    ),
    "half a row a person": (
        PERSONS,
        lambda c: next(
            s["bound_contributions"]
            for s in c["program"]["flow"]["vectors"]["steps"]
            if "bound_contributions" in s
        ).update(max_rows=0.5),
        True,
    ),
    "no bound on a person's rows": (
        PERSONS,
        lambda c: (
            c["program"]["flow"]["vectors"]["steps"].pop(0),
            [s.update(stability=1) for s in c["plan"]["stages"].values()],
        ),
        True,
    ),
    "half a record hidden": (
        RACE,
        both(
            *(
                put(f"{p}.unit.add_remove", 0.5)
                for p in ("privacy", "plan.privacy", "program.privacy")
            ),
            put("plan.privacy.d_in", 0.5),
            lambda c: rescaled(c, 0.25, "noisy"),
        ),
        True,
    ),
    "replaced told at distance 1": (VOTES, put("plan.privacy.d_in", 1), True),
    "a replaced row's attackers at distance 1": (
        VOTES,
        lambda c: c["plan"]["attackers"].update(unit=copy.deepcopy(c["plan"]["attackers"]["one"])),
        True,
    ),
    "delta of thresholds lower": (
        VOTES,
        lambda c: (
            [
                x.__setitem__(1, 1e-9)
                for x in (
                    c["plan"]["releases"]["labels"]["loss"],
                    c["plan"]["releases"]["labels"]["own"]["loss"],
                    c["plan"]["total"],
                )
            ]
            and retold(c["plan"])
        ),
        True,
    ),
    "delta left out of the claim": (VOTES, put("plan.claim.1", 4.9999999999999996e-06), True),
    "teachers' queries fewer": (
        VOTES,
        both(put("program.data.teachers.columns.votes.dtype", "array[u8, 4]"), lambda c: None),
        True,
    ),
    "a step left out of maps": (
        RACE,
        lambda c: c["plan"]["releases"]["noisy"]["maps"].pop(0),
        True,
    ),
    "a step left out of the derivation": (RACE, lambda c: c["derivation"]["noisy"].pop(0), True),
    "a factor of the derivation": (PERSONS, put("derivation.noisy.0.factor", "1"), True),
    "a lemma's other formula": (RACE, put("derivation.noisy.0.formula", "select/2"), True),
    "a block of the derivation": (RACE, put("derivation.noisy.3.inputs.blocks.0.3", "100"), True),
    "mu squared": (RACE, put("plan.gaussian.mu_squared", "1/1000"), True),
    "power at a rate": (RACE, put("plan.attackers.unit.tpr_at_fpr.0.01", times(0.5)), "rate"),
    "a rate left out": (
        RACE,
        lambda c: c["plan"]["attackers"]["unit"]["tpr_at_fpr"].pop("0.5"),
        True,
    ),
    "attackers told as exact": (SELECT, put("plan.attackers.unit.exact", True), True),
    "a mechanism left out": (SELECT, lambda c: c["mechanisms"].pop(), True),
    "an assumption softened": (RACE, put("assumptions.0", "The unit is a person."), False),
    "data told as public": (
        RACE,
        lambda c: c["program"]["data"]["digits"].update(public=True),
        True,
    ),
    "the budget above its claim": (RACE, put("program.privacy.budget.epsilon", 0.5), True),
    "infinity": (RACE, "infinity", False),
    "a name twice": (RACE, "twice", False),
    "a charge invented": (
        RACE,
        put("charge", {"entry": 1, "previous": "0" * 64, "body": "{}", "hash": "0" * 64}),
        False,
    ),
    "a signature invented": (
        RACE,
        put("signature", {"scheme": "ed25519", "key": "00" * 32, "value": "00" * 64}),
        False,
    ),
    "a share of the budget": (SELECT, put("plan.releases.peeled.spend", "1/2"), True),
    "a given scale": (SELECT, put("plan.releases.peeled.mechanism.peel.scale", 40.0), True),
    "another file's name": (RACE, put("file.name", "../other"), False),
    "stages that come from each other": (RACE, put("program.flow.vectors.from", "sketch"), True),
    "a fraction that takes forever": (RACE, put("plan.gaussian.by_types", "1e999999999"), True),
    "an output of what is not released": (
        RACE,
        both(
            *(put(f"{p}.outputs.densities.from", "vectors") for p in ("plan", "program")),
            put("plan.outputs.densities.stage", "vectors"),
        ),
        True,
    ),
    "fewer candidates": (
        SELECT,
        lambda c: c["program"]["data"]["digits"]["columns"]["pixel"]["keys"].__delitem__(
            slice(5, None)
        ),
        True,
    ),
    "own measure": (SELECT, put("plan.releases.size.own.measure", "max_divergence"), True),
    # Fields that the page does not have, which a reader would believe.
    "an epsilon of its own": (RACE, put("plan.real_epsilon", 0.001), False),
    "an epsilon beside a release": (RACE, put("plan.releases.noisy.epsilon", 0.001), False),
    "a weaker attacker": (RACE, put("plan.attackers.person", {"advantage": 0.0}), False),
    "a unit in words": (RACE, put("names.unit", "a whole company"), False),
    "an auditor's name": (
        RACE,
        lambda c: [e.update(audited_by="an authority") for e in c["evidence"].values()],
        False,
    ),
    "a lemma that is no text": (
        RACE,
        lambda c: c["derivation"]["noisy"][0].update(lemma={"epsilon": 0.001}),
        False,
    ),
}

NEEDS_SIGNATURE = {
    # Nothing of these follows from the rest: another honest run could state the same.
    "another run's time": (RACE, put("time", "2020-01-01T00:00:00+00:00"), False),
    "a better tier of evidence": (
        RACE,
        lambda c: [e.update(tier="proved and audited") for e in c["evidence"].values()],
        False,
    ),
    "a sentence about a mechanism": (RACE, put("mechanisms.0.what", "It is safe."), False),
    "versions": (RACE, put("versions.opendp", "9.9"), False),
    "a smaller expected error": (
        RACE,
        lambda c: [
            o["expected"].update({k: v / 10 for k, v in o["expected"].items()})
            for o in c["plan"]["outputs"].values()
        ],
        False,
    ),
    "a lemma's page": (RACE, put("derivation.noisy.0.page", "0" * 64), False),
    "a seed": (RACE, stepped("sketch", "race_sketch", seed=8), True),
    "the program's source": (RACE, put("program.data.digits.source", {"csv": "other.csv"}), True),
    "a whole other program": (PERSONS, one_row_a_person, True),
    "a release left out of the program too": (SELECT, lambda c: dropped(c, program=True), True),
}


def forged(whole, edit, fits):
    """Return the text of a forged certificate."""
    c = json.loads(json.dumps(whole))
    if edit == "spelling":
        return json.dumps(c, indent=1).replace('"epsilon": 1.0', '"epsilon": 1.00', 1)
    if edit == "infinity":
        return json.dumps(c, indent=1).replace('"epsilon": 1.0', '"epsilon": 1e999', 1)
    if edit == "twice":
        return json.dumps(c, indent=1).replace('"output":', '"output": "x", "output":', 1)
    if fits == "rate":
        c["plan"]["attackers"]["unit"]["tpr_at_fpr"]["0.01"] *= 0.5
    else:
        edit(c)
    if fits is True:
        fix(c)
    return json.dumps(c, indent=1)
