//! The client of all calls that are no watches. As kube makes it, but for one socket option that it does not offer.

use std::time::Duration;

use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{ClientBuilder, ConfigExt as _};
use tower::{BoxError, Layer as _, ServiceExt as _};

/// What was sent and is not acknowledged by then is never sent again: the kernel gives the connection up. Not longer than
/// what lies between the end of a leader's term and the beginning of the next.
const UNACKNOWLEDGED: Duration = Duration::from_secs(4);

/// # Errors
/// The configuration's certificates or credentials cannot be used.
pub(super) fn of(config: kube::Config) -> kube::Result<kube::Client> {
    // To a proxy kube has its own connectors; what was sent twice then is between the proxy and the API server.
    if config.proxy_url.is_some() {
        return Ok(ClientBuilder::try_from(config)?.build());
    }
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(http)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let service = config.extra_headers_layer()?.layer(client.map_err(BoxError::from));
    let service = tower::util::option_layer(config.auth_layer()?).layer(service);
    let service = config.base_uri_layer().layer(service);
    Ok(kube::Client::new(service, config.default_namespace))
}
