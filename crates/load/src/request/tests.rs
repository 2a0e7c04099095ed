//! Whole requests.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::encode::tests::decode;
use super::*;
use crate::config::Stream;
use crate::error::LoadError;

const SEED: u64 = 7;

fn stream(keys: Value) -> Stream {
    let mut json = json!({"function": "f", "targets": [],
        "arrivals": {"kind": "burst", "sizes": [1], "interval_ns": 0, "bursts": 1}});
    json.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    serde_json::from_value(json).unwrap()
}

fn try_plan(keys: Value, url: &str) -> Result<RequestTemplate, LoadError> {
    let (scheme, rest) = url.split_once("://").unwrap();
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let place = Place { scheme, authority, path: &path };
    plan(&stream(keys), SEED, false, &[place], &[]).map(|(mut templates, _)| templates.remove(0))
}

fn template(keys: Value, url: &str) -> RequestTemplate {
    try_plan(keys, url).unwrap()
}

fn moment(number: u64) -> Moment<'static> {
    Moment { prefix: "demo:x", stream: 3, number, unix_ns: 1_440_938_160_999_999_999, answers: &[] }
}

fn bytes(template: &RequestTemplate, moment: &Moment) -> Vec<u8> {
    let mut rendered = Rendered::new();
    template.render_http1(&mut rendered, moment);
    let all = [rendered.head(), rendered.body()].concat();
    for written in [0, 1, rendered.head().len(), all.len() - 1, all.len()] {
        assert!(all[written..].starts_with(rendered.rest(written)));
        assert_eq!(rendered.rest(written).is_empty(), written == all.len());
    }
    all
}

fn text(keys: Value, url: &str) -> String {
    String::from_utf8(bytes(&template(keys, url), &moment(14))).unwrap()
}

/// Method, target, headers in the order of their names, body.
type Parsed = (String, String, Vec<(String, String)>, Vec<u8>);

fn parse(request: &[u8]) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut parsed = httparse::Request::new(&mut headers);
    let length = parsed.parse(request).unwrap().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut headers: Vec<_> =
        parsed.headers.iter().map(|h| (h.name.to_owned(), text(h.value))).collect();
    headers.sort();
    let (method, target) = (parsed.method.unwrap(), parsed.path.unwrap());
    (method.to_owned(), target.to_owned(), headers, request[length..].to_vec())
}

fn of_http2(template: &RequestTemplate, moment: &Moment) -> Parsed {
    let (request, body) = template.render_http2(moment);
    assert_eq!(request.version(), http::Version::HTTP_2);
    let text = |value: &http::HeaderValue| String::from_utf8(value.as_bytes().to_vec()).unwrap();
    let mut headers: Vec<_> =
        request.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect();
    headers.push(("host".to_owned(), request.uri().authority().unwrap().to_string()));
    headers.sort();
    let target = request.uri().path_and_query().unwrap().to_string();
    (request.method().to_string(), target, headers, body.to_vec())
}

fn header<'a>(parsed: &'a Parsed, name: &str) -> Option<&'a str> {
    parsed.2.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
}

#[test]
fn a_request_is_as_the_standard_says() {
    let request = text(
        json!({"headers": {"Content-Type": "application/json"},
            "body": {"text": "{}"}, "invocation_header": "x-uncia-invocation"}),
        "http://localhost:8000/f?x=1",
    );
    let version = env!("CARGO_PKG_VERSION");
    let expected = format!(
        "POST /f?x=1 HTTP/1.1\r\nhost: localhost:8000\r\ncontent-type: application/json\r\n\
         user-agent: uncia/{version}\r\ncontent-length: 2\r\n\
         x-uncia-invocation: demo:x-3-14\r\n\r\n{{}}"
    );
    assert_eq!(request, expected);
}

#[test]
fn without_a_body_it_is_a_get_without_a_length() {
    let request = text(json!({"headers": {"host": "h", "user-agent": "me"}}), "http://a");
    assert_eq!(request, "GET / HTTP/1.1\r\nhost: h\r\nuser-agent: me\r\n\r\n");
    let request = text(json!({"method": "POST"}), "http://a");
    assert!(request.contains("content-length: 0\r\n"), "{request}");
    let request = text(json!({"body": {"base64": "aGk="}}), "http://a");
    assert!(request.ends_with("content-length: 2\r\n\r\nhi"), "{request}");
    assert!(template(json!({"method": "HEAD"}), "http://a").is_head());
}

#[test]
fn the_same_name_is_the_same_value_everywhere() {
    let request = parse(&bytes(
        &template(
            json!({
                "query": {"q": "{{c}}/{{number}}", "p p": "1"},
                "headers": {"x-n": "<{{n}}>", "x-id": "{{invocation}}"},
                "body": {"template": "{\"c\": {\"s\": \"{{c}}\", \"n\":{{ n }}}}"},
                "fields": {
                    "c": {"kind": "choice", "values": ["a b&ü?/"]},
                    "n": {"kind": "integer", "min": -5, "max": -5},
                },
                "invocation_header": "x-inv",
            }),
            "http://a/p/{{c}}/{{invocation}}?own={{number}}",
        ),
        &moment(14),
    ));
    let encoded = "a%20b%26%C3%BC%3F%2F";
    assert_eq!(request.1, format!("/p/{encoded}/demo%3Ax-3-14?own=14&p%20p=1&q={encoded}%2F14"));
    assert_eq!(header(&request, "x-id"), Some("demo:x-3-14"));
    assert_eq!(header(&request, "x-inv"), Some("demo:x-3-14"));
    assert_eq!(header(&request, "x-n"), Some("<-5>"));
    let body = "{\"c\": {\"s\": \"a b&ü?/\", \"n\":-5}}";
    assert_eq!(String::from_utf8(request.3.clone()).unwrap(), body);
    assert_eq!(header(&request, "content-length"), Some(body.len().to_string().as_str()));
}

#[test]
fn a_column_gives_each_request_its_own_value() {
    let keys = json!({
        "headers": {"x-v": "{{v}}"},
        "body": {"template": "[{{v}}, {{v}}]"},
        "fields": {"v": {"kind": "column", "values": [1.5, "a&b", "", 7]}},
    });
    let template = template(keys, "http://a/{{v}}");
    let expected = [("1.5", "1.5"), ("a&b", "a%26b"), ("", ""), ("7", "7")];
    for (number, (value, encoded)) in (0..).zip(expected) {
        for request in
            [parse(&bytes(&template, &moment(number))), of_http2(&template, &moment(number))]
        {
            assert_eq!(request.1, format!("/{encoded}"));
            assert_eq!(header(&request, "x-v"), Some(value));
            assert_eq!(request.3, format!("[{value}, {value}]").into_bytes());
        }
    }
    let line = json!({
        "headers": {"x-v": "{{v}}"},
        "fields": {"v": {"kind": "column", "values": ["a", "b\r\nc"]}},
    });
    let message = try_plan(line, "http://a/").err().unwrap().to_string();
    assert!(message.contains("\"b\\r\\nc\" has characters that may not be"), "{message}");
}

/// The example of docs/reference/requests.md; its values were computed independently.
#[test]
fn the_published_example() {
    let request = text(
        json!({
            "function": "thumbnail", "method": "POST", "query": {"size": "{{size}}"},
            "headers": {"content-type": "application/json", "x-request": "{{id}}"},
            "body": {"template": "{\"id\": \"{{id}}\", \"user\": {{user}}, \"n\": {{number}}}"},
            "fields": {
                "id": {"kind": "uuid"},
                "user": {"kind": "integer", "min": 1, "max": 10000},
                "size": {"kind": "choice", "values": [64, 128, "full size"]},
            },
        }),
        "http://127.0.0.1:8080/users/{{user}}/thumbnail",
    );
    let id = "76606fe0-c862-48a5-a59c-c909628015d2";
    let expected = format!(
        "POST /users/2843/thumbnail?size=full%20size HTTP/1.1\r\nhost: 127.0.0.1:8080\r\n\
         content-type: application/json\r\nx-request: {id}\r\nuser-agent: uncia/{}\r\n\
         content-length: 69\r\n\r\n{{\"id\": \"{id}\", \"user\": 2843, \"n\": 14}}",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(request, expected);
}

#[test]
fn the_query_is_appended() {
    let target = |url: &str, query: Value| parse(text(json!({"query": query}), url).as_bytes()).1;
    for (url, expected) in [
        ("http://a", "/?b=2&c="),
        ("http://a/?", "/?b=2&c="),
        ("http://a/x?a=1", "/x?a=1&b=2&c="),
        ("http://a/x?a=1&", "/x?a=1&b=2&c="),
        ("http://a/%7e|ü?[]={{number}}", "/%7E%7C%C3%BC?%5B%5D=14&b=2&c="),
    ] {
        assert_eq!(target(url, json!({"c": "", "b": "2"})), expected, "{url}");
    }
    assert_eq!(target("http://a/x?a=1&", json!({})), "/x?a=1&");
    assert_eq!(target("http://a/{{{{x", json!({})), "/%7B%7Bx");
}

#[test]
fn random_bytes_are_shared_and_large_bodies_apart() {
    let large = template(json!({"body": {"random_bytes": 100_000}}), "http://a");
    let mut rendered = Rendered::new();
    large.render_http1(&mut rendered, &moment(1));
    assert_eq!(rendered.body().len(), 100_000);
    let one = rendered.body().as_ptr();
    assert_eq!(large.render_http2(&moment(2)).1.as_ptr(), one);
    let small = template(json!({"body": {"random_bytes": 16_384}}), "http://a");
    small.render_http1(&mut rendered, &moment(1));
    assert!(rendered.body().is_empty() && rendered.head().len() > 16_384);
    // A large template, after a constant one in the same buffers.
    let drawn = template(
        json!({"body": {"template": "<{{t}}>"},
            "fields": {"t": {"kind": "text", "length": 50_000}}}),
        "http://a",
    );
    let request = parse(&bytes(&drawn, &moment(1)));
    assert_eq!(header(&request, "content-length"), Some("50002"));
    drawn.render_http1(&mut rendered, &moment(1));
    assert_eq!(rendered.body(), request.3);
    assert_ne!(bytes(&drawn, &moment(2)), bytes(&drawn, &moment(1)));
}

#[test]
fn replicas_have_requests_of_their_own() {
    let place = |path| Place { scheme: "http", authority: "a", path };
    let keys = json!({"fields": {"x": {"kind": "uuid"}}});
    let both = plan(&stream(keys), SEED, false, &[place("/{{x}}"), place("/2")], &[]).unwrap().0;
    assert!(parse(&bytes(&both[0], &moment(0))).1.len() > 30);
    assert_eq!(parse(&bytes(&both[1], &moment(0))).1, "/2");
}

#[test]
fn what_can_t_be_sent_is_a_sentence_that_names_it() {
    let uuid = json!({"kind": "uuid"});
    let sign = |key: &str, value: &str| {
        let mut sign = json!({"region": "r", "service": "s", "access_key_id": "A",
            "secret_access_key": "hush"});
        sign[key] = value.into();
        json!({"aws_sigv4": sign})
    };
    let cases = [
        (json!({"headers": {"x": "{{y}}"}}), "the header \"x\" is not a template"),
        (json!({"headers": {"x": "{{y}}"}}), "no field \"y\""),
        (json!({"query": {"q": "{{y"}}), "the query parameter \"q\" is not a template"),
        (json!({"query": {"q": "{{y"}}), "nothing closes the braces"),
        (json!({"body": {"template": "{{y}}"}}), "the body is not a template"),
        (json!({"query": {"": "1"}}), "its name is empty"),
        (json!({"query": {"{{number}}": "1"}}), "only its value can be a template"),
        (json!({"fields": {"x": uuid}}), "nothing uses it: write {{x}}"),
        (json!({"fields": {"number": uuid}}), "the name is built in"),
        (json!({"fields": {"x": {"kind": "integer", "min": 2, "max": 1}}}), "more than max"),
        (json!({"fields": {"x": {"kind": "choice", "values": []}}}), "no values"),
        (
            json!({"fields": {"x": {"kind": "choice", "values": ["ok", "a\r\nb: c"]}},
                "headers": {"x-y": "{{x}}"}}),
            "may not be in the header \"x-y\"",
        ),
        (
            json!({"fields": {"x": {"kind": "text", "length": 20_000}}, "query": {"q": "{{x}}"}}),
            "could have 600",
        ),
        (json!({"body": {"random_bytes": (1u64 << 30) + 1}}), "1 GiB"),
        (
            json!({"body": {"template": "{{x}}".repeat(2_000)},
                "fields": {"x": {"kind": "text", "length": 1 << 20}}}),
            "1 GiB",
        ),
        (json!({"headers": {"A": "1", "a": "2"}}), "given twice"),
        (json!({"headers": {"Upgrade": "x"}}), "the generator sets it"),
        (json!({"headers": {"id": ""}, "invocation_header": "ID"}), "carry the invocation id"),
        (json!({"headers": {"keep-alive": "1"}, "http_version": "2"}), "HTTP/2 does not allow it"),
        (json!({"headers": {"te": "gzip"}, "http_version": "auto"}), "nothing but \"trailers\""),
        (json!({"headers": {"host": "{{number}}"}, "http_version": "2"}), "can't be a template"),
        (json!({"headers": {"host": "a b"}, "http_version": "2"}), "not a host"),
        (json!({"sign": sign("region", "")}), "the region must be"),
        (json!({"sign": sign("service", "Lambda")}), "the service must be"),
        (json!({"sign": sign("access_key_id", "a/b")}), "the access key id"),
        (json!({"sign": sign("secret_access_key", "hush\n")}), "the secret access key"),
        (json!({"sign": sign("session_token", "hush ")}), "the session token"),
        (json!({"sign": sign("service", "s"), "headers": {"X-Amz-Date": "x"}}), "signing sets it"),
    ];
    for (keys, expected) in cases {
        let message = try_plan(keys, "http://a/").unwrap_err().to_string();
        assert!(message.contains(expected), "{expected:?} not in {message:?}");
        assert!(message.starts_with("stream \"f\"") && !message.contains("hush"), "{message}");
    }
    for (url, expected) in [
        ("http://a/100%", "two hexadecimal digits"),
        ("http://a/%{{number}}", "two hexadecimal digits"),
        ("http://a/{{x}}", "no field \"x\""),
        ("http://a/?q={{", "nothing closes"),
    ] {
        let message = try_plan(json!({}), url).unwrap_err().to_string();
        assert!(message.contains(expected) && message.contains("path and query"), "{message}");
    }
    let message = try_plan(json!({"sign": sign("service", "s")}), "http://a/?q=a+b").unwrap_err();
    assert!(message.to_string().contains("write %20 or %2B"), "{message}");
}

#[test]
fn signatures_are_those_of_an_independent_implementation() {
    let data: Value = serde_json::from_str(include_str!("../../tests/data/sigv4.json")).unwrap();
    let vectors = data["vectors"].as_array().unwrap();
    assert!(vectors.len() >= 20);
    for vector in vectors {
        let mut keys = vector["stream"].clone();
        keys["invocation_header"] = "x-uncia-invocation".into();
        let template = template(keys, vector["url"].as_str().unwrap());
        let unix_ns = vector["unix_s"].as_i64().unwrap() * 1_000_000_000 + 999_999_999;
        let number = vector["number"].as_u64().unwrap();
        let moment = Moment { unix_ns, ..moment(number) };
        // The second time may come from what was kept of the first.
        for _ in 0..2 {
            for request in [parse(&bytes(&template, &moment)), of_http2(&template, &moment)] {
                let expected = |key: &str| vector.get(key).map(|value| value.as_str().unwrap());
                let name = &vector["name"];
                assert_eq!(Some(request.1.as_str()), expected("target"), "{name}");
                assert_eq!(header(&request, "authorization"), expected("authorization"), "{name}");
                assert_eq!(header(&request, "x-amz-date"), expected("date"), "{name}");
                let hash = header(&request, "x-amz-content-sha256");
                assert_eq!(hash, expected("content_sha256"), "{name}");
                let token = &vector["stream"]["sign"]["aws_sigv4"]["session_token"];
                assert_eq!(header(&request, "x-amz-security-token"), token.as_str(), "{name}");
            }
        }
    }
}

#[test]
fn a_signature_is_of_its_second_and_day() {
    let sign = json!({"aws_sigv4": {"region": "r", "service": "s", "access_key_id": "A",
        "secret_access_key": "hush", "session_token": "silence"}});
    let signed = template(json!({"sign": sign}), "http://a/");
    let fresh = || template(json!({"sign": sign}), "http://a/");
    let at = |unix_ns| Moment { unix_ns, ..moment(0) };
    let times = [0, 999_999_999, 1_000_000_000, 86_399_000_000_000, 86_400_000_000_000, 0, -1];
    for unix_ns in times {
        assert_eq!(bytes(&signed, &at(unix_ns)), bytes(&fresh(), &at(unix_ns)), "{unix_ns}");
    }
    assert_eq!(bytes(&signed, &at(0)), bytes(&signed, &at(999_999_999)));
    assert_ne!(bytes(&signed, &at(0)), bytes(&signed, &at(1_000_000_000)));
    let (request, _) = signed.render_http2(&at(0));
    let shown = format!("{signed:?} {request:?}");
    assert!(!shown.contains("hush") && !shown.contains("silence"), "{shown}");
    assert!(!shown.contains("Signature="), "{shown}");
}

fn any_field() -> impl Strategy<Value = Value> {
    prop_oneof![
        (any::<i64>(), any::<i64>())
            .prop_map(|(a, b)| json!({"kind": "integer", "min": a.min(b), "max": a.max(b)})),
        prop::collection::vec("[ -~]{0,12}", 1..4)
            .prop_map(|values| json!({"kind": "choice", "values": values})),
        (1u32..40).prop_map(|length| json!({"kind": "text", "length": length})),
        Just(json!({"kind": "uuid"})),
    ]
}

proptest! {
    /// Both versions say the same, whatever is drawn and wherever it goes, signed or not.
    #[test]
    fn both_versions_of_http_say_the_same(
        field in any_field(),
        literal in "[ -~]{0,8}",
        version in prop::sample::select(vec!["1.1", "2", "auto"]),
        service in prop::option::of(prop::sample::select(vec!["s3", "lambda"])),
        number: u64,
        unix_ns: i64,
    ) {
        let literal = literal.replace("{{", "{{{{").replace("{{{{{", "{{{{ {");
        let mut keys = json!({
            "query": {"q&": format!("{literal}{{{{x}}}}")},
            "headers": {"x-h": format!("{literal}{{{{x}}}}|{{{{number}}}}")},
            "body": {"template": format!("{literal}{{{{x}}}}é")},
            "fields": {"x": field}, "http_version": version,
            "invocation_header": "x-inv",
        });
        // A brace before a placeholder would be one of three.
        prop_assume!(!literal.ends_with('{'));
        if let Some(service) = service {
            keys["sign"] = json!({"aws_sigv4": {"region": "r", "service": service,
                "access_key_id": "A", "secret_access_key": "B"}});
        }
        let template = template(keys, "http://a/p/{{x}}");
        let moment = Moment { unix_ns, ..moment(number) };
        let request = bytes(&template, &moment);
        prop_assert_eq!(&request, &bytes(&template, &moment));
        let mut one = parse(&request);
        // A parser drops white space around values.
        for (_, value) in &mut one.2 {
            *value = value.trim().to_owned();
        }
        let mut other = of_http2(&template, &moment);
        for (_, value) in &mut other.2 {
            *value = value.trim().to_owned();
        }
        prop_assert_eq!(&one, &other);
        // What was drawn is the same in all places.
        let value = decode(one.1.strip_prefix("/p/").unwrap().split('?').next().unwrap().as_bytes());
        let plain = literal.replace("{{{{", "{{");
        let body = [plain.as_bytes(), &value, "é".as_bytes()].concat();
        prop_assert_eq!(&one.3, &body);
        let in_query = decode(one.1.split_once("?q%26=").unwrap().1.as_bytes());
        prop_assert_eq!(in_query, [plain.as_bytes(), &value].concat());
    }

    #[test]
    fn any_text_is_a_request_or_an_error(
        path in "/[ -~é]{0,20}",
        value in "\\PC{0,20}",
        name in "\\PC{0,8}",
        signed: bool,
    ) {
        prop_assume!(!path.contains('#'));
        for mut alone in [
            json!({"query": {name.as_str(): value}}),
            json!({"headers": {name.as_str(): value}}),
            json!({"body": {"template": value}}),
        ] {
            if signed {
                alone["sign"] = json!({"aws_sigv4": {"region": "r", "service": "s3",
                    "access_key_id": "A", "secret_access_key": "B"}});
            }
            let place = Place { scheme: "http", authority: "a", path: &path };
            if let Ok((templates, _)) = plan(&stream(alone), SEED, false, &[place], &[]) {
                let _ = parse(&bytes(&templates[0], &moment(0)));
                let _ = of_http2(&templates[0], &moment(0));
            }
        }
    }
}
