"""An empty string and a status code."""


def handler(event, context):
    return {"statusCode": 200, "body": ""}
