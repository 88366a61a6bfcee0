//! Connections: accepts them, shakes hands, serves HTTP/1.1 or HTTP/2 on them, and lets them finish at the end.
//! What a request means is `route`'s business.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::BufReader;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::client::Caller;
use super::route::{Leave, Router};
use super::seats::{Seat, Seats};
use super::stall::Stall;
use super::{Limits, Service, Tls};
use crate::metrics::{Metrics, Port, Readiness};

/// Read of a connection at one time, at most. TLS asks for 4 KiB at a time, and a record has four times that.
const READ: usize = 64 << 10;

pub struct Server<S> {
    pub service: Arc<S>,
    pub tls: Arc<Tls>,
    pub limits: Limits,
    pub metrics: Arc<Metrics>,
    pub readiness: Arc<Readiness>,
}

/// What every connection shares.
struct Shared<S> {
    router: Arc<Router<S>>,
    tls: Arc<Tls>,
    limits: Limits,
    metrics: Arc<Metrics>,
    http1: auto::Builder<TokioExecutor>,
    http2: auto::Builder<TokioExecutor>,
}

impl<S: Service> Server<S> {
    /// Serves until `stop`, then drains: for `drain_delay` all goes on while /readyz says no, then nothing new
    /// is accepted, and after `grace` what is left is cut off.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) {
        let Self {
            service,
            tls,
            limits,
            metrics,
            readiness,
        } = self;
        let seats = Seats::new(limits.connections);
        let leave = CancellationToken::new();
        let mut connections = JoinSet::new();
        let drain_delay = limits.drain_delay;
        let grace = limits.grace;
        let shared = Arc::new(Shared {
            router: Arc::new(Router::new(service, &limits, metrics.clone(), tls.paths().clone())),
            http1: http1(&limits),
            http2: http2(&limits),
            tls,
            limits,
            metrics,
        });

        let closing = async {
            stop.cancelled().await;
            readiness.stop();
            tokio::time::sleep(drain_delay).await;
        };
        tokio::pin!(closing);
        loop {
            let accepted = tokio::select! {
                () = &mut closing => break,
                accepted = listener.accept() => accepted,
                // Finished ones are taken out as they finish: the set does not grow with the time served.
                Some(_) = connections.join_next() => continue,
            };
            match accepted {
                Ok((stream, _)) => {
                    let (seat, shed) = seats.take();
                    if shed {
                        shared.metrics.connection_shed(Port::Tls);
                    }
                    if let Some(seat) = seat {
                        connections.spawn(seated(shared.clone(), stream, leave.child_token(), seat));
                    }
                }
                // Out of file descriptors, most likely: the connections we have must end first.
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        drop(listener);
        leave.cancel();
        let ended = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, ended).await.is_err() {
            tracing::warn!(
                connections = connections.len(),
                "grace period over: connections cut off"
            );
        }
        connections.shutdown().await;
    }
}

/// One connection, until it ends or another needs its seat more.
async fn seated<S: Service>(shared: Arc<Shared<S>>, stream: TcpStream, leave: CancellationToken, seat: Arc<Seat>) {
    tokio::select! {
        () = seat.lost() => tracing::debug!("all seats are taken and this one was used least: connection closed"),
        () = connection(shared, stream, leave, &seat) => {}
    }
}

async fn connection<S: Service>(shared: Arc<Shared<S>>, stream: TcpStream, leave: CancellationToken, seat: &Arc<Seat>) {
    let _open = Open::new(shared.metrics.clone());
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY");
    }
    let stream = BufReader::with_capacity(READ, Stall::new(stream, shared.limits.stalled));
    let handshake = TlsAcceptor::from(shared.tls.current().config.clone()).accept(stream);
    let stream = match tokio::time::timeout(shared.limits.handshake, handshake).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            shared.metrics.handshake_failures.inc();
            tracing::debug!(%error, "TLS handshake failed");
            return;
        }
        Err(_) => {
            shared.metrics.handshake_failures.inc();
            tracing::debug!("TLS handshake took too long");
            return;
        }
    };
    let (_, session) = stream.get_ref();
    let mut trust = shared.tls.trust();
    let caller = Arc::new(Caller::new(shared.tls.clone(), session.peer_certificates()));
    if caller.client().is_known() {
        seat.known();
    }
    // By ALPN, never by looking at the first bytes: waiting for them would have no deadline.
    let http = match session.alpn_protocol() {
        Some(b"h2") => &shared.http2,
        _ => &shared.http1,
    };

    let service = {
        let (router, seat, leave, caller) = (shared.router.clone(), seat.clone(), leave.clone(), caller.clone());
        service_fn(move |request| {
            let (router, client, seat, leave) = (router.clone(), caller.client(), seat.clone(), leave.clone());
            async move {
                let response = router.handle(&client, &seat, request).await;
                if response.extensions().get::<Leave>().is_some() {
                    leave.cancel();
                }
                Ok::<_, Infallible>(response)
            }
        })
    };
    let served = http.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(served);
    let (mut waiting, mut leaving) = (true, false);
    let silence = tokio::time::sleep(shared.limits.first_request);
    tokio::pin!(silence);
    let end = tokio::time::sleep(caller.keeps());
    tokio::pin!(end);
    let result = loop {
        tokio::select! {
            result = &mut served => break result,
            () = &mut silence, if waiting => {
                waiting = false;
                if !seat.asked() {
                    tracing::debug!("no request came: connection closed");
                    return;
                }
            }
            // Who has a newer certificate comes back with it, and no request of his is refused on the way.
            () = &mut end, if !leaving => leave.cancel(),
            // An error: it will not change any more.
            Ok(()) = trust.changed(), if !leaving => {
                if caller.client().lost {
                    leave.cancel();
                }
            }
            () = leave.cancelled(), if !leaving => {
                leaving = true;
                served.as_mut().graceful_shutdown();
            }
        }
    };
    if let Err(error) = result {
        tracing::debug!(error, "connection ended");
    }
}

fn http1(limits: &Limits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle)
        // The read buffer, which a head must fit in; bodies pass through it in pieces of this size.
        .max_buf_size(limits.head_bytes.max(8 << 10));
    builder.http1_only()
}

fn http2(limits: &Limits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        // A filter body for 5,000 nodes is a few hundred kilobytes: with the default windows it would stop for
        // a round trip every 64 KiB.
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(16 << 20)
        .max_frame_size(64 << 10)
        .max_send_buf_size(1 << 20)
        .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX))
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(10));
    builder.http2_only()
}

/// Counts a connection while it is open.
struct Open(Arc<Metrics>);

impl Open {
    fn new(metrics: Arc<Metrics>) -> Self {
        metrics.connections.inc();
        metrics.connections_total.inc();
        Self(metrics)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections.dec();
    }
}
