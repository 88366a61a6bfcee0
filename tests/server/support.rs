//! A server with the fake behind it, and a client that speaks HTTP/1.1 or HTTP/2 over TLS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;
use wattlane::certs::{Authority, Pair};
use wattlane::metrics::{Metrics, Readiness};
use wattlane::server::{Limits, Material, Server, Tls, TlsOptions};

use crate::fake::Fake;

/// Far above what anything here takes: only a hang reaches it.
const HANG: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Http {
    One,
    Two,
}

pub(crate) const BOTH: [Http; 2] = [Http::One, Http::Two];

pub(crate) type Body = BoxBody<Bytes, std::io::Error>;

pub(crate) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) authority: Authority,
    pub(crate) tls: Arc<Tls>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) fake: Arc<Fake>,
    pub(crate) stop: CancellationToken,
    pub(crate) serving: JoinHandle<()>,
}

/// `127.0.0.1` and the SNI name clients use.
pub(crate) fn serving_pair(authority: &Authority) -> Pair {
    authority
        .serving(&["localhost".into(), "127.0.0.1".into()], 30)
        .expect("signs")
}

pub(crate) async fn start(limits: Limits) -> Running {
    let authority = Authority::new().expect("a CA");
    let pair = serving_pair(&authority);
    let options = TlsOptions {
        cert: Material::Text(pair.cert),
        key: Material::Text(pair.key),
        client_ca: None,
        client_names: vec![],
        admission_names: vec![],
    };
    let tls = Arc::new(Tls::load(options).expect("loads"));
    start_with(limits, authority, tls).await
}

pub(crate) async fn start_with(limits: Limits, authority: Authority, tls: Arc<Tls>) -> Running {
    let metrics = Arc::new(Metrics::new().expect("registers"));
    let readiness = Arc::new(Readiness::new(metrics.clone(), None));
    let fake = Arc::new(Fake::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = listener.local_addr().expect("bound");
    let stop = CancellationToken::new();
    let server = Server {
        service: fake.clone(),
        tls: tls.clone(),
        limits,
        metrics: metrics.clone(),
        readiness: readiness.clone(),
    };
    let serving = tokio::spawn(server.serve(listener, stop.clone()));
    Running {
        address,
        authority,
        tls,
        metrics,
        readiness,
        fake,
        stop,
        serving,
    }
}

impl Running {
    pub(crate) fn peer(&self) -> Peer {
        Peer {
            address: self.address,
            ca: self.authority.pair().cert.clone(),
            client: None,
        }
    }

    /// The value of one series, as Prometheus would read it.
    pub(crate) fn value(&self, series: &str) -> f64 {
        value(&self.metrics, series)
    }

    pub(crate) fn requests(&self, verb: &str, outcome: &str) -> f64 {
        self.value(&format!(
            r#"wattlane_requests_total{{outcome="{outcome}",verb="{verb}"}}"#
        ))
    }
}

pub(crate) fn value(metrics: &Metrics, series: &str) -> f64 {
    let page = metrics.render();
    let line = page.lines().find_map(|l| l.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no series {series}"))
        .parse()
        .expect("a number")
}

/// Who is called, and who we are.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) ca: String,
    pub(crate) client: Option<Pair>,
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("UTF-8")
    }
}

pub(crate) enum Conn {
    One(hyper::client::conn::http1::SendRequest<Body>),
    Two(hyper::client::conn::http2::SendRequest<Body>),
}

impl Peer {
    pub(crate) async fn tls(&self, http: Http) -> anyhow::Result<TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        for ca in CertificateDer::pem_slice_iter(self.ca.as_bytes()) {
            roots.add(ca?)?;
        }
        let builder = rustls::ClientConfig::builder().with_root_certificates(roots);
        let mut config = match &self.client {
            None => builder.with_no_client_auth(),
            Some(pair) => builder.with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(pair.cert.as_bytes())?],
                PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?,
            )?,
        };
        config.alpn_protocols = match http {
            Http::One => vec![b"http/1.1".to_vec()],
            Http::Two => vec![b"h2".to_vec()],
        };
        let tcp = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("localhost")?;
        Ok(TlsConnector::from(Arc::new(config)).connect(name, tcp).await?)
    }

    pub(crate) async fn connect(&self, http: Http) -> anyhow::Result<Conn> {
        let io = TokioIo::new(self.tls(http).await?);
        Ok(match http {
            Http::One => {
                let (send, connection) = hyper::client::conn::http1::handshake(io).await?;
                tokio::spawn(connection);
                Conn::One(send)
            }
            Http::Two => {
                let (send, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await?;
                tokio::spawn(connection);
                Conn::Two(send)
            }
        })
    }

    /// POST on a connection of its own.
    pub(crate) async fn post(&self, http: Http, path: &str, body: impl Into<Bytes>) -> Answer {
        let mut conn = self.connect(http).await.expect("connects");
        conn.send(Method::POST, path, whole(body)).await.expect("answers")
    }
}

impl Conn {
    pub(crate) async fn send(&mut self, method: Method, path: &str, body: Body) -> anyhow::Result<Answer> {
        self.typed(method, path, "application/json", body).await
    }

    pub(crate) async fn typed(&mut self, method: Method, path: &str, kind: &str, body: Body) -> anyhow::Result<Answer> {
        let request = Request::builder().method(method).header("content-type", kind);
        let exchange = async {
            let response = match self {
                Self::One(send) => {
                    send.ready().await?;
                    send.send_request(request.uri(path).header("host", "localhost").body(body)?)
                        .await?
                }
                Self::Two(send) => {
                    send.ready().await?;
                    send.send_request(request.uri(format!("https://localhost{path}")).body(body)?)
                        .await?
                }
            };
            let (head, body) = response.into_parts();
            anyhow::Ok(Answer {
                status: head.status,
                headers: head.headers,
                body: body.collect().await?.to_bytes(),
            })
        };
        no_hang(exchange).await
    }

    pub(crate) async fn post(&mut self, path: &str, body: impl Into<Bytes>) -> anyhow::Result<Answer> {
        self.send(Method::POST, path, whole(body)).await
    }
}

/// Fails the test instead of letting it hang.
pub(crate) async fn no_hang<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANG, future).await.expect("it hangs")
}

/// Waits for something that another task brings about.
pub(crate) async fn eventually(what: &str, mut there: impl FnMut() -> bool) {
    let wait = async {
        while !there() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(HANG, wait).await.is_ok(), "never happened: {what}");
}

pub(crate) fn args(word: &str, names: &[&str]) -> String {
    serde_json::json!({"Pod": {"metadata": {"name": word}}, "Nodes": null, "NodeNames": names}).to_string()
}
