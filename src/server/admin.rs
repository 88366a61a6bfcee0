//! The admin port: plain HTTP for kubelet probes and Prometheus. Says nothing that is secret, decides nothing.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::seats::Seats;
use crate::metrics::{Metrics, Port, Readiness};

/// Probes and one or two scrapers: more at a time is somebody's mistake, and costs the one that was silent longest its place.
const CONNECTIONS: usize = 64;
const IDLE: Duration = Duration::from_secs(60);

/// Serves until `stop`. A connection that is open then is dropped: nothing here is worth waiting for.
pub async fn serve(listener: TcpListener, metrics: Arc<Metrics>, readiness: Arc<Readiness>, stop: CancellationToken) {
    let seats = Seats::new(CONNECTIONS);
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .max_buf_size(16 << 10);
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "admin port: cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (seat, shed) = seats.take();
        if shed {
            metrics.connection_shed(Port::Admin);
        }
        let Some(seat) = seat else { continue };
        let asking = seat.clone();
        let (metrics, readiness, stop) = (metrics.clone(), readiness.clone(), stop.clone());
        let service = service_fn(move |request| {
            let _in_flight = asking.request();
            let response = answer(&request, &metrics, &readiness);
            async move { Ok::<_, Infallible>(response) }
        });
        let connection = http.serve_connection(TokioIo::new(stream), service);
        tokio::spawn(async move {
            // Its errors are the client's business.
            tokio::select! {
                () = seat.lost() => {}
                () = stop.cancelled() => {}
                _ = connection => {}
            }
        });
    }
}

fn answer(request: &Request<Incoming>, metrics: &Metrics, readiness: &Readiness) -> Response<Full<Bytes>> {
    if request.method() != Method::GET {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "this port takes GET\n".to_owned());
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        return response;
    }
    match request.uri().path() {
        "/livez" => text(StatusCode::OK, "ok\n".to_owned()),
        "/readyz" => {
            let missing = readiness.missing();
            if missing.is_empty() {
                return text(StatusCode::OK, "ok\n".to_owned());
            }
            let lines: String = missing.iter().map(|m| format!("{m}\n")).collect();
            text(StatusCode::SERVICE_UNAVAILABLE, lines)
        }
        "/metrics" => {
            // Brings the ages of the watches up to date.
            readiness.missing();
            let mut response = text(StatusCode::OK, metrics.render());
            let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
        _ => text(
            StatusCode::NOT_FOUND,
            "/livez, /readyz and /metrics are here\n".to_owned(),
        ),
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
