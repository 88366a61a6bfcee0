//! A small HTTPS client for one address: one connection, one request at a time. What `simulate` uses to
//! go the way kube-apiserver and kube-scheduler go.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct Client {
    send: SendRequest<Full<Bytes>>,
    host: String,
}

impl Client {
    /// `ca_pem` is the only root that is trusted; the server must prove to be `name`.
    pub(super) async fn connect(address: SocketAddr, name: &'static str, ca_pem: &str) -> anyhow::Result<Self> {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
            roots.add(certificate.context("the CA is not a PEM certificate")?)?;
        }
        let config = rustls::ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let tcp = TcpStream::connect(address)
            .await
            .with_context(|| format!("cannot connect to {address}"))?;
        tcp.set_nodelay(true)?;
        let tls = TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(name)?, tcp);
        let tls = tokio::time::timeout(TIMEOUT, tls)
            .await
            .context("TLS handshake timed out")??;
        let (send, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tls)).await?;
        // Ends when `send` is dropped or the server closes; its error reaches the request in flight.
        tokio::spawn(connection);
        Ok(Self {
            send,
            host: name.to_owned(),
        })
    }

    /// Status and body.
    pub(super) async fn post(
        &mut self,
        path: &str,
        body: impl Into<Bytes>,
    ) -> anyhow::Result<(http::StatusCode, Bytes)> {
        let request = http::Request::post(path)
            .header(http::header::HOST, &self.host)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Full::new(body.into()))?;
        let exchange = async {
            self.send.ready().await?;
            let response = self.send.send_request(request).await?;
            let status = response.status();
            anyhow::Ok((status, response.into_body().collect().await?.to_bytes()))
        };
        tokio::time::timeout(TIMEOUT, exchange)
            .await
            .with_context(|| format!("POST {path} timed out"))?
    }
}
