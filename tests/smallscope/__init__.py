"""All graphs of two and three operators, instead of random ones that rarely draw a rare pair.

site.py          where a form puts its nodes: constants, inputs, values as they arise
forms*.py        the forms: one operator with one way of giving its operands and attributes
shapes.py        the shapes of what a graph reads
recipes.py       chains, triangles, diamonds; the shape and the opset that each is built for
stages.py        which forms meet in which way
enumeration.py   graphs by their numbers; what is equivalent is dropped
judges.py        whether the engine computes a graph as it should, in all precisions, levels, backends and threads
further.py       the same for `convert`, int8 calibration and the search's adjoint
batches.py       child processes, so that a crash names its graph
run.py           the command line
"""
