//! What a request says of who signed it: in the header `authorization`, or in its query.

use crate::canonical::decode;
use crate::{ALGORITHM, END_OF_SCOPE};

/// The parameters of a presigned address, which is signed in its query.
const ALGORITHM_PARAMETER: &str = "X-Amz-Algorithm";
const CREDENTIAL: &str = "X-Amz-Credential";
const DATE: &str = "X-Amz-Date";
const EXPIRES: &str = "X-Amz-Expires";
const SIGNED_HEADERS: &str = "X-Amz-SignedHeaders";
const SIGNATURE: &str = "X-Amz-Signature";
const SECURITY_TOKEN: &str = "X-Amz-Security-Token";
const PARAMETERS: [&str; 7] =
    [ALGORITHM_PARAMETER, CREDENTIAL, DATE, EXPIRES, SIGNED_HEADERS, SIGNATURE, SECURITY_TOKEN];

/// The longest that an address may be signed for, in seconds: AWS's week.
const MAX_EXPIRES_S: i64 = 7 * 24 * 60 * 60;

/// Who signed a request, for what, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Authorization {
    pub access_key_id: String,
    pub day: String,
    pub region: String,
    pub service: String,
    pub signed_headers: String,
    pub signature: String,
}

/// What the query of a presigned address says beside that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Presigned {
    pub authorization: Authorization,
    pub date: String,
    /// For how long it was signed, in seconds.
    pub expires_s: i64,
    /// The session of the access key, if it names one.
    pub session: Option<String>,
    /// The query that was signed: all of it but the signature.
    pub query: String,
}

impl Authorization {
    /// Reads the value of the header `authorization`; none if it has another form.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(ALGORITHM)?;
        let part = |name: &str| {
            let mut parts = rest.split(',').map(str::trim);
            parts.find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
        };
        Self::new(part("Credential")?, part("SignedHeaders")?, part("Signature")?)
    }

    fn new(credential: &str, signed_headers: &str, signature: &str) -> Option<Self> {
        // From the end, since an access key may have slashes.
        let mut scope = credential.rsplitn(5, '/').map(str::to_owned);
        let (end, service, region) = (scope.next()?, scope.next()?, scope.next()?);
        let (day, access_key_id) = (scope.next()?, scope.next()?);
        let (signed_headers, signature) = (signed_headers.to_owned(), signature.to_owned());
        (end == END_OF_SCOPE).then_some(Self {
            access_key_id,
            day,
            region,
            service,
            signed_headers,
            signature,
        })
    }
}

impl Presigned {
    /// Reads the query of a request; an error is what is wrong with one that claims to be signed.
    pub(crate) fn read(query: &str) -> Option<Result<Self, &'static str>> {
        let value = |name: &str| {
            let value = pairs(query).find(|(it, _)| *it == name)?.1;
            Some(decoded(value))
        };
        value(ALGORITHM_PARAMETER)?;
        Some(Self::complete(query, value))
    }

    fn complete(query: &str, value: impl Fn(&str) -> Option<String>) -> Result<Self, &'static str> {
        let twice =
            PARAMETERS.iter().any(|name| pairs(query).filter(|(it, _)| it == name).count() > 1);
        if twice {
            return Err("A parameter of the signature is there twice");
        }
        if value(ALGORITHM_PARAMETER).as_deref() != Some(ALGORITHM) {
            return Err("X-Amz-Algorithm must be AWS4-HMAC-SHA256");
        }
        let authorization = value(CREDENTIAL)
            .zip(value(SIGNED_HEADERS))
            .zip(value(SIGNATURE))
            .and_then(|((credential, headers), it)| Authorization::new(&credential, &headers, &it))
            .ok_or(
                "A presigned address must have X-Amz-Credential=ID/DAY/REGION/SERVICE/aws4_request, \
                 X-Amz-SignedHeaders and X-Amz-Signature",
            )?;
        let expires_s = value(EXPIRES)
            .filter(|text| text.bytes().all(|it| it.is_ascii_digit()))
            .and_then(|text| text.parse().ok())
            .filter(|seconds| (1..=MAX_EXPIRES_S).contains(seconds))
            .ok_or("X-Amz-Expires must be a number of seconds from 1 to 604800")?;
        let signed = query.split('&').filter(|pair| pair.split('=').next() != Some(SIGNATURE));
        Ok(Self {
            authorization,
            date: value(DATE).unwrap_or_default(),
            expires_s,
            session: value(SECURITY_TOKEN),
            query: signed.collect::<Vec<_>>().join("&"),
        })
    }
}

/// A query without what signs it; none if nothing does.
#[must_use]
pub fn without_signature(query: &str) -> Option<String> {
    if !pairs(query).any(|(name, _)| name == ALGORITHM_PARAMETER) {
        return None;
    }
    let is_of_it = |pair: &str| PARAMETERS.contains(&pair.split('=').next().unwrap_or(pair));
    let rest: Vec<&str> = query.split('&').filter(|pair| !is_of_it(pair)).collect();
    Some(rest.join("&"))
}

fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

fn decoded(text: &str) -> String {
    String::from_utf8_lossy(&decode(text)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUERY: &str = "a=b&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKID%2F20150830%2Fus-east-1%2F\
                         lambda%2Faws4_request&X-Amz-Date=20150830T123600Z&X-Amz-Expires=60&\
                         X-Amz-SignedHeaders=host&X-Amz-Signature=ab&c";

    #[test]
    fn a_presigned_query_is_read() {
        let read = Presigned::read(QUERY).unwrap().unwrap();
        let Authorization { access_key_id, day, region, service, signed_headers, signature } =
            read.authorization;
        assert_eq!((&*access_key_id, &*day, &*region), ("AKID", "20150830", "us-east-1"));
        assert_eq!((&*service, &*signed_headers, &*signature), ("lambda", "host", "ab"));
        assert_eq!((read.expires_s, read.session), (60, None));
        assert_eq!(read.query, QUERY.replace("X-Amz-Signature=ab&", ""));
        assert_eq!(without_signature(QUERY).as_deref(), Some("a=b&c"));
        assert_eq!(without_signature("X-Amz-Date=x"), None);
    }

    #[test]
    fn one_that_is_not_whole_is_refused() {
        assert_eq!(Presigned::read("a=b"), None);
        for (from, to, words) in [
            ("AWS4-HMAC-SHA256", "AWS4-X", "X-Amz-Algorithm must be"),
            ("%2Faws4_request", "", "must have X-Amz-Credential"),
            ("&X-Amz-Signature=ab", "", "must have X-Amz-Credential"),
            ("Expires=60", "Expires=0", "X-Amz-Expires must be"),
            ("Expires=60", "Expires=604801", "X-Amz-Expires must be"),
            ("Expires=60", "Expires=%2B6", "X-Amz-Expires must be"),
            ("&c", "&X-Amz-Date=20150830T123600Z", "is there twice"),
        ] {
            let query = QUERY.replace(from, to);
            let message = Presigned::read(&query).unwrap().unwrap_err();
            assert!(message.contains(words), "{query}: {message}");
        }
    }
}
