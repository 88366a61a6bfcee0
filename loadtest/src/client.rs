//! One TLS connection that sends one request at a time, over HTTP/1.1 or HTTP/2.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// Who we trust and who we are: the files of `wattlane certs`. Resumes sessions, where it opens more than one connection.
pub(crate) fn tls_config(pki: &std::path::Path, protocol: Protocol) -> anyhow::Result<Arc<rustls::ClientConfig>> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(pki.join("ca.crt"))? {
        roots.add(certificate?)?;
    }
    let chain = CertificateDer::pem_file_iter(pki.join("client.crt"))?.collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_file(pki.join("client.key"))?;
    // In the order of Go, whose first choice the server takes: of the two AES it is the other one here.
    let mut provider = rustls::crypto::ring::default_provider();
    let first = rustls::CipherSuite::TLS13_AES_128_GCM_SHA256;
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != first);
    let mut config = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)?;
    config.alpn_protocols = vec![match protocol {
        Protocol::Http1 => b"http/1.1".to_vec(),
        Protocol::Http2 => b"h2".to_vec(),
    }];
    Ok(Arc::new(config))
}

enum Send {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

pub(crate) struct Connection {
    send: Send,
    address: SocketAddr,
}

impl Connection {
    pub(crate) async fn open(
        address: SocketAddr,
        tls: Arc<rustls::ClientConfig>,
        protocol: Protocol,
    ) -> anyhow::Result<Self> {
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        let tls = tokio_rustls::TlsConnector::from(tls)
            .connect(ServerName::try_from("localhost")?, tcp)
            .await?;
        let io = TokioIo::new(tls);
        let send = match protocol {
            Protocol::Http1 => {
                let (send, connection) = http1::handshake(io).await?;
                tokio::spawn(connection);
                Send::Http1(send)
            }
            Protocol::Http2 => {
                // Windows large enough that flow control is not what is measured.
                let (send, connection) = http2::Builder::new(TokioExecutor::new())
                    .initial_stream_window_size(4 << 20)
                    .initial_connection_window_size(8 << 20)
                    .handshake(io)
                    .await?;
                tokio::spawn(connection);
                Send::Http2(send)
            }
        };
        Ok(Self { send, address })
    }

    /// The body of a 200 answer.
    pub(crate) async fn post(&mut self, path: &str, body: Bytes) -> anyhow::Result<Bytes> {
        let request = http::Request::post(format!("https://{}{path}", self.address))
            .header(http::header::HOST, self.address.to_string())
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))?;
        let response = match &mut self.send {
            Send::Http1(send) => {
                send.ready().await?;
                send.send_request(request).await?
            }
            Send::Http2(send) => {
                send.ready().await?;
                send.send_request(request).await?
            }
        };
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        if status != http::StatusCode::OK {
            bail!(
                "{path}: {status}: {}",
                String::from_utf8_lossy(&body).chars().take(300).collect::<String>()
            );
        }
        Ok(body)
    }
}

/// GET over plain HTTP, for the admin port.
pub(crate) async fn plain(address: SocketAddr, path: &str) -> anyhow::Result<(http::StatusCode, String)> {
    let (mut send, connection) = http1::handshake(TokioIo::new(TcpStream::connect(address).await?)).await?;
    tokio::spawn(connection);
    let request = http::Request::get(path)
        .header(http::header::HOST, "localhost")
        .body(Full::<Bytes>::default())?;
    let response = send.send_request(request).await.context("admin port")?;
    let status = response.status();
    Ok((
        status,
        String::from_utf8(response.into_body().collect().await?.to_bytes().to_vec())?,
    ))
}
