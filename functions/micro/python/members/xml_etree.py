"""Trees of XML made, searched and written."""

import xml.etree.ElementTree as etree
from xml.parsers import expat


def prepare(bench):
    return bench.build_xml_tree(etree)


def run(bench, repeat, root):
    for _ in range(repeat):
        # Both raise where what they write is not what it must be.
        bench.bench_process(etree, None, None, root)
        bench.bench_generate(etree, None, None, root)


def check(bench, root, result):
    counted = []
    parser = expat.ParserCreate()
    parser.StartElementHandler = lambda name, attributes: counted.append(name)
    parser.Parse(etree.tostring(root), True)
    return counted == [element.tag for element in root.iter()]
