//! TLS over a socket that never blocks.

use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use socket2::Socket;

use crate::config;

/// The names of the protocols in ALPN (RFC 7301).
pub(crate) const HTTP1: &[u8] = b"http/1.1";
pub(crate) const HTTP2: &[u8] = b"h2";

/// Why TLS can't be spoken as the configuration asks.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{path} cannot be read as certificates in PEM: {reason}")]
    CaFile { path: String, reason: String },
    #[error("{path} has no certificate in it")]
    NoCertificate { path: String },
    #[error(
        "this machine has no certificates of authorities to trust{reason}: install them (Debian: ca-certificates), or name a file with tls.ca_file"
    )]
    NoRoots { reason: String },
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] Error),
}

/// What all connections to endpoints of one kind share. `protocols`: what ALPN offers, in order.
///
/// Sessions are not resumed: a fresh connection then costs what a stranger's first one costs.
pub(crate) fn client_config(
    tls: &config::Tls,
    protocols: &[&[u8]],
) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    let mut config = if tls.insecure {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(TrustAnybody(provider)))
            .with_no_client_auth()
    } else {
        builder.with_root_certificates(roots(tls)?).with_no_client_auth()
    };
    config.resumption = Resumption::disabled();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(Arc::new(config))
}

fn roots(tls: &config::Tls) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = &tls.ca_file {
        let path = file.display().to_string();
        let wrong = |reason: String| TlsError::CaFile { path: path.clone(), reason };
        for certificate in
            CertificateDer::pem_file_iter(file).map_err(|error| wrong(error.to_string()))?
        {
            let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
            roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(TlsError::NoCertificate { path });
        }
        return Ok(roots);
    }
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let reason = found.errors.first().map_or(String::new(), |error| format!(" ({error})"));
        return Err(TlsError::NoRoots { reason });
    }
    Ok(roots)
}

/// TLS on one connection. The socket is always the same one, and the caller's.
pub(crate) struct Tls(ClientConnection);

impl Tls {
    pub(crate) fn new(
        config: &Arc<ClientConfig>,
        server: &ServerName<'static>,
    ) -> Result<Self, Error> {
        ClientConnection::new(config.clone(), server.clone()).map(Self)
    }

    /// Goes on with the handshake; true when it is complete.
    pub(crate) fn handshake(&mut self, socket: &Socket) -> io::Result<bool> {
        loop {
            let sent = self.flush(socket)?;
            if !self.0.is_handshaking() {
                return Ok(true);
            }
            if !self.0.wants_read() {
                return Ok(sent);
            }
            match self.receive(socket) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether there is something to send that the socket had no room for.
    pub(crate) fn wants_write(&self) -> bool {
        self.0.wants_write()
    }

    /// What ALPN agreed on.
    pub(crate) fn protocol(&self) -> Option<&[u8]> {
        self.0.alpn_protocol()
    }

    /// Reads plain bytes; 0 at the end that the server announced.
    pub(crate) fn read(&mut self, socket: &Socket, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                found => return found,
            }
            self.receive(socket)?;
            // Answers of TLS's own, to key updates for example.
            self.flush(socket)?;
        }
    }

    fn receive(&mut self, mut socket: &Socket) -> io::Result<usize> {
        loop {
            match self.0.read_tls(&mut socket) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(size) => {
                    if let Err(error) = self.0.process_new_packets() {
                        // The server is told why, if it still listens.
                        let _ = self.flush(socket);
                        return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                    }
                    return Ok(size);
                }
            }
        }
    }

    /// Takes plain bytes, as many as there is room for.
    pub(crate) fn write(&mut self, socket: &Socket, bytes: &[u8]) -> io::Result<usize> {
        let size = self.0.writer().write(bytes)?;
        let sent = self.flush(socket)?;
        match size {
            0 if !sent => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(size),
        }
    }

    /// Sends what was taken; true when all of it is sent.
    pub(crate) fn flush(&mut self, mut socket: &Socket) -> io::Result<bool> {
        while self.0.wants_write() {
            match self.0.write_tls(&mut socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// Trusts every certificate, because it was told to.
#[derive(Debug)]
struct TrustAnybody(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustAnybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
