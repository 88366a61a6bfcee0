//! The admin port: probes that tell the truth, and a page that Prometheus can read.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use wattlane::admission::{Skip, Swept};
use wattlane::audit;
use wattlane::cluster::WatchStatus as _;
use wattlane::index::Kind;
use wattlane::metrics::{Admitted, Bound, Metrics, Outcome, PolicyLoad, Port, Readiness, Verb};
use wattlane::model::Reason;
use wattlane::server::admin;

use crate::support::no_hang;

pub(crate) async fn ask(address: SocketAddr, method: &str, path: &str) -> (u16, String) {
    let exchange = async {
        let tcp = TcpStream::connect(address).await.expect("connects");
        let (mut send, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tcp))
            .await
            .expect("HTTP");
        tokio::spawn(connection);
        let request = http::Request::builder().method(method).uri(path).header("host", "a");
        let response = send
            .send_request(request.body(Empty::<Bytes>::new()).expect("a request"))
            .await
            .expect("answers");
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (status, String::from_utf8(body.to_vec()).expect("UTF-8"))
    };
    no_hang(exchange).await
}

struct Admin {
    address: SocketAddr,
    metrics: Arc<Metrics>,
    readiness: Arc<Readiness>,
    stop: CancellationToken,
}

async fn start() -> Admin {
    let metrics = Arc::new(Metrics::new().expect("registers"));
    let readiness = Arc::new(Readiness::new(metrics.clone(), Some(Duration::from_secs(3600))));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = listener.local_addr().expect("bound");
    let stop = CancellationToken::new();
    tokio::spawn(admin::serve(listener, metrics.clone(), readiness.clone(), stop.clone()));
    Admin {
        address,
        metrics,
        readiness,
        stop,
    }
}

#[tokio::test]
async fn probes_tell_what_is_missing() {
    let admin = start().await;
    assert_eq!(ask(admin.address, "GET", "/livez").await, (200, "ok\n".into()));
    for (i, kind) in Kind::ALL.into_iter().enumerate() {
        let (status, body) = ask(admin.address, "GET", "/readyz").await;
        assert_eq!(status, 503);
        assert_eq!(body.lines().count(), Kind::ALL.len() - i, "{body}");
        assert!(
            body.contains(&format!("{} has not been listed yet\n", kind.as_str())),
            "{body}"
        );
        admin.readiness.alive(kind);
    }
    assert_eq!(ask(admin.address, "GET", "/readyz").await, (200, "ok\n".into()));
    admin.readiness.certificate_expires(1);
    assert_eq!(
        ask(admin.address, "GET", "/readyz").await,
        (503, "the serving certificate has expired\n".into())
    );
    admin.readiness.certificate_expires(i64::MAX);
    admin.readiness.stop();
    assert_eq!(
        ask(admin.address, "GET", "/readyz").await,
        (503, "shutting down\n".into())
    );
    assert_eq!(
        ask(admin.address, "GET", "/livez").await.0,
        200,
        "it lives until it ends"
    );
    assert_eq!(ask(admin.address, "GET", "/").await.0, 404);
    assert_eq!(ask(admin.address, "POST", "/livez").await.0, 405);
    admin.stop.cancel();
    while TcpStream::connect(admin.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

/// Series by family, read strictly: a line that Prometheus would not take panics.
pub(crate) type Page = BTreeMap<String, Vec<(BTreeMap<String, String>, f64)>>;

pub(crate) fn parse(page: &str) -> Page {
    assert!(page.ends_with('\n'), "the last line ends too");
    let mut types: BTreeMap<&str, &str> = BTreeMap::new();
    let mut helped = BTreeSet::new();
    let mut series = BTreeSet::new();
    let mut families = Page::new();
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').expect("words");
            assert!(!text.is_empty() && helped.insert(name), "{line}");
            continue;
        }
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a type");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(types.insert(name, kind).is_none() && helped.contains(name), "{line}");
            continue;
        }
        let (head, value) = line.rsplit_once(' ').expect("a value");
        assert!(series.insert(head), "twice: {line}");
        let value = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
        let (name, labels) = match head.split_once('{') {
            None => (head, ""),
            Some((name, labels)) => (name, labels.strip_suffix('}').expect("closed")),
        };
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{line}");
        // No label here may hold a comma or a quote: they are from closed sets.
        let labels = labels.split(',').filter(|l| !l.is_empty()).map(|label| {
            let (key, value) = label.split_once('=').expect("a label");
            let value = value
                .strip_prefix('"')
                .and_then(|v| v.strip_suffix('"'))
                .expect("quoted");
            assert!(!value.contains(['"', '\\']), "{line}");
            (key.to_owned(), value.to_owned())
        });
        let histogram = ["_bucket", "_sum", "_count"]
            .iter()
            .filter_map(|s| name.strip_suffix(s))
            .find(|n| types.get(n) == Some(&"histogram"));
        let family = histogram.unwrap_or(name);
        let kind = types.get(family).unwrap_or_else(|| panic!("no TYPE before {line}"));
        assert_eq!(*kind == "counter", family.ends_with("_total"), "{line}");
        families
            .entry(name.to_owned())
            .or_default()
            .push((labels.collect(), value));
    }
    families
}

/// The values of a label must be these, all of them and no other.
#[track_caller]
pub(crate) fn closed(page: &Page, name: &str, label: &str, values: impl IntoIterator<Item = &'static str>) {
    let found: BTreeSet<&str> = page[name].iter().map(|(labels, _)| labels[label].as_str()).collect();
    assert_eq!(found, values.into_iter().collect(), "{name} by {label}");
}

/// Every family, with the labels it may have.
const FAMILIES: &[(&str, &[&str])] = &[
    ("wattlane_admission_closed", &[]),
    ("wattlane_admission_skips_total", &["reason"]),
    ("wattlane_admissions_total", &["outcome"]),
    ("wattlane_api_call_duration_seconds_bucket", &["call", "le"]),
    ("wattlane_api_call_duration_seconds_count", &["call"]),
    ("wattlane_api_call_duration_seconds_sum", &["call"]),
    ("wattlane_audit_findings", &["kind"]),
    ("wattlane_binds_total", &["outcome"]),
    ("wattlane_build_info", &["version"]),
    ("wattlane_cache_age_seconds", &[]),
    ("wattlane_connections", &[]),
    ("wattlane_connections_shed_total", &["port"]),
    ("wattlane_connections_total", &[]),
    ("wattlane_given_back_total", &["outcome"]),
    ("wattlane_holds", &[]),
    ("wattlane_holds_ended_total", &["outcome"]),
    ("wattlane_leader", &[]),
    ("wattlane_leader_changes_total", &["change"]),
    ("wattlane_leader_label_failures_total", &[]),
    ("wattlane_lease_renew_failures_total", &[]),
    ("wattlane_node_verdicts_total", &["reason"]),
    ("wattlane_partition_series", &[]),
    ("wattlane_pokes_total", &[]),
    ("wattlane_policy_hash", &[]),
    ("wattlane_policy_load_failed", &[]),
    ("wattlane_policy_load_timestamp_seconds", &[]),
    ("wattlane_policy_loads_total", &["outcome"]),
    ("wattlane_power_domains", &[]),
    ("wattlane_publications_total", &[]),
    ("wattlane_refused_pods", &[]),
    ("wattlane_request_duration_seconds_bucket", &["le", "verb"]),
    ("wattlane_request_duration_seconds_count", &["verb"]),
    ("wattlane_request_duration_seconds_sum", &["verb"]),
    ("wattlane_requests_total", &["outcome", "verb"]),
    ("wattlane_reservations", &[]),
    ("wattlane_searches_cut_total", &["verb"]),
    ("wattlane_shared_claims", &[]),
    ("wattlane_snapshot_version", &[]),
    ("wattlane_templates_swept_total", &["outcome"]),
    ("wattlane_tls_ca_expiry_timestamp_seconds", &[]),
    ("wattlane_tls_ca_switch_timestamp_seconds", &[]),
    ("wattlane_tls_certificate_expiry_timestamp_seconds", &[]),
    ("wattlane_tls_handshake_failures_total", &[]),
    ("wattlane_tls_reloads_total", &["outcome"]),
    ("wattlane_tls_rotations_total", &["action", "outcome"]),
    ("wattlane_watch_alive", &["kind"]),
    ("wattlane_watch_restarts_total", &["kind"]),
    ("wattlane_watch_undecodable_total", &["kind"]),
];

/// Every family is there, with its labels, and each label has its whole closed set.
pub(crate) fn judge(page: &Page) {
    let expected: Vec<_> = FAMILIES.to_vec();
    assert_eq!(
        page.keys().map(String::as_str).collect::<Vec<_>>(),
        expected.iter().map(|(name, _)| *name).collect::<Vec<_>>()
    );
    for (name, labels) in expected {
        for (found, _) in &page[name] {
            assert_eq!(found.keys().map(String::as_str).collect::<Vec<_>>(), labels, "{name}");
        }
    }
    let verbs = || Verb::ALL.map(Verb::as_str);
    closed(page, "wattlane_requests_total", "verb", verbs());
    closed(
        page,
        "wattlane_requests_total",
        "outcome",
        Outcome::ALL.map(Outcome::as_str),
    );
    assert_eq!(
        page["wattlane_requests_total"].len(),
        Verb::ALL.len() * Outcome::ALL.len()
    );
    closed(page, "wattlane_request_duration_seconds_count", "verb", verbs());
    let reasons = Reason::ALL.map(Reason::as_str).into_iter().chain(["fits"]);
    closed(page, "wattlane_node_verdicts_total", "reason", reasons);
    closed(page, "wattlane_binds_total", "outcome", Bound::ALL.map(Bound::as_str));
    closed(
        page,
        "wattlane_admissions_total",
        "outcome",
        Admitted::ALL.map(Admitted::as_str),
    );
    closed(
        page,
        "wattlane_templates_swept_total",
        "outcome",
        Swept::ALL.map(Swept::as_str),
    );
    closed(
        page,
        "wattlane_admission_skips_total",
        "reason",
        Skip::ALL.map(Skip::as_str),
    );
    closed(
        page,
        "wattlane_connections_shed_total",
        "port",
        Port::ALL.map(Port::as_str),
    );
    closed(
        page,
        "wattlane_policy_loads_total",
        "outcome",
        PolicyLoad::ALL.map(PolicyLoad::as_str),
    );
    closed(page, "wattlane_tls_reloads_total", "outcome", ["taken", "refused"]);
    closed(page, "wattlane_leader_changes_total", "change", ["gained", "lost"]);
    closed(
        page,
        "wattlane_audit_findings",
        "kind",
        audit::Kind::ALL.map(audit::Kind::as_str),
    );
    for family in ["alive", "restarts_total", "undecodable_total"] {
        closed(
            page,
            &format!("wattlane_watch_{family}"),
            "kind",
            Kind::ALL.map(Kind::as_str),
        );
    }
}

#[tokio::test]
async fn the_metrics_page_reads_as_prometheus_text() {
    let admin = start().await;
    admin.metrics.preset_skips(Skip::ALL.map(Skip::as_str));
    admin.metrics.preset_swept(Swept::ALL.map(Swept::as_str));
    for kind in Kind::ALL.into_iter().skip(1) {
        admin.readiness.alive(kind);
    }
    let (status, body) = ask(admin.address, "GET", "/metrics").await;
    assert_eq!(status, 200);
    let page = parse(&body);
    judge(&page);
    let alive: f64 = page["wattlane_watch_alive"].iter().map(|(_, v)| v).sum();
    assert_eq!(alive, (Kind::ALL.len() - 1) as f64);
}
