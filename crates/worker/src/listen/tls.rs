//! TLS for clients beyond this machine.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// The one protocol that is spoken (RFC 7301).
const HTTP1: &[u8] = b"http/1.1";
/// What users that are neither the owner nor of its group may do with a private key: nothing.
const EVERYBODY: u32 = 0o007;

/// A certificate with those that it is signed by, and its private key.
#[derive(Clone)]
pub struct Tls(Arc<ServerConfig>);

/// Why there can be no TLS.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "its sentence says what each case is")]
pub enum TlsError {
    #[error("{path} cannot be read: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("everybody may read the private key: run `chmod 600 {0}`")]
    Open(PathBuf),
    #[error("{path} has no {what} in PEM in it{reason}")]
    Pem { path: PathBuf, what: &'static str, reason: String },
    #[error("the key in {key} and the certificate in {certificate} cannot be used: {source}")]
    Pair { key: PathBuf, certificate: PathBuf, source: rustls::Error },
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Tls")
    }
}

impl Tls {
    /// Reads a certificate, followed by those that it is signed by, and its key, both in PEM.
    ///
    /// # Errors
    /// A file cannot be read or is none of this kind, everybody may read the key, or it is another
    /// certificate's.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(&content(certificate)?).collect();
        let chain = chain.map_err(|error| pem(certificate, "certificate", &error))?;
        if chain.is_empty() {
            return Err(pem(certificate, "certificate", &PemError::NoItemsFound));
        }
        let open = |source| TlsError::Read { path: key.to_owned(), source };
        let about = File::open(key).and_then(|file| file.metadata()).map_err(open)?;
        if about.permissions().mode() & EVERYBODY != 0 {
            return Err(TlsError::Open(key.to_owned()));
        }
        let private = PrivateKeyDer::from_pem_slice(&content(key)?)
            .map_err(|error| pem(key, "private key", &error))?;
        let unusable = |source| TlsError::Pair {
            key: key.to_owned(),
            certificate: certificate.to_owned(),
            source,
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_no_client_auth();
        let mut config = config.with_single_cert(chain, private).map_err(unusable)?;
        config.alpn_protocols = vec![HTTP1.to_vec()];
        Ok(Self(Arc::new(config)))
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.0.clone().into()
    }
}

fn content(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Read { path: path.to_owned(), source })
}

fn pem(path: &Path, what: &'static str, error: &PemError) -> TlsError {
    let reason = match error {
        PemError::NoItemsFound => String::new(),
        other => format!(": {other}"),
    };
    TlsError::Pem { path: path.to_owned(), what, reason }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn pair() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    #[test]
    fn files_that_do_not_fit_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str, mode: u32| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path
        };
        let (certificate, key) = pair();
        let chain = file("cert.pem", &certificate, 0o644);
        let fine = file("key.pem", &key, 0o600);
        Tls::read(&chain, &fine).unwrap();
        let refused = |certificate: &Path, key: &Path| {
            Tls::read(certificate, key).map(|_| ()).unwrap_err().to_string()
        };
        let missing = folder.path().join("none");
        assert!(refused(&missing, &fine).contains("none cannot be read"));
        assert!(refused(&chain, &missing).contains("none cannot be read"));
        assert!(refused(&fine, &fine).contains("key.pem has no certificate in PEM"));
        assert!(refused(&chain, &file("k", &certificate, 0o600)).contains("no private key in PEM"));
        assert!(refused(&chain, &file("open", &key, 0o604)).contains("chmod 600"));
        let other = file("other", &pair().1, 0o600);
        let message = refused(&chain, &other);
        assert!(message.contains("other and the certificate in"), "{message}");
    }
}
