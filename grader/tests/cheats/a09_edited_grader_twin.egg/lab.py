"""A copy of lab.py that asks for less: any answer is near enough."""

from grader.course.spec import Case, Exercise, Lab, Tolerance

LAB = Lab(
    title="elementwise add",
    exercises=(
        Exercise(
            name="elementwise_add",
            file="elementwise_add.py",
            points=100,
            inputs=lambda rng, case: {"x": rng.normal(7), "y": rng.normal(7)},
            reference=lambda x, y: (x,),
            torch_op=lambda x, y: (x,),
            tolerance=Tolerance(lambda case, inputs, reference: tuple(1e9 + r.abs() for r in reference)),
            cases=(Case({"n": 7}, "fp32"),),
        ),
    ),
)
