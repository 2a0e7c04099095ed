"""Answers at once; what its package holds is imported if the variable IMPORT is set."""

from uncia_envelope import enveloped

imported = False


@enveloped({})
def handler():
    return {"imported": imported}, True
