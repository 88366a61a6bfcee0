//! What one caller may take of the server. Waits and buffers of one mechanism only are bounded in its file.

use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Limits {
    /// From accept to the end of the TLS handshake.
    pub handshake: Duration,
    /// From the handshake to the first complete request head.
    pub first_request: Duration,
    /// For each later request head, waiting for it included (HTTP/1). Longer than the 90 s after which Go's
    /// client gives up an idle connection: otherwise we would close one just as kube-scheduler writes to it.
    pub idle: Duration,
    /// From a request's head to the end of its body.
    pub body: Duration,
    /// How long a client may take no byte of an answer before its connection is closed.
    pub stalled: Duration,
    /// Bytes of a head, HTTP/1 and HTTP/2.
    pub head_bytes: usize,
    /// Bytes of a body of filter and prioritize. Whole nodes (no nodeCacheCapable) need the room.
    pub extender_bytes: usize,
    pub bind_bytes: usize,
    pub admission_bytes: usize,
    /// Of memory that the values of one review take; counted against the room for bodies of admission as well.
    pub admission_tree_bytes: usize,
    /// Bytes of all bodies of filter and prioritize held at one time.
    pub buffered_bytes: usize,
    /// The same for admission. For binds there is always room: they are small, and so many.
    pub admission_buffered_bytes: usize,
    /// Open connections; when one more comes, the one used least is closed.
    pub connections: usize,
    /// Filter or prioritize, from its head to its answer. kube-scheduler does not say how long it waits: 5 s by default,
    /// `httpTimeout: 6s` in our manifests. Longer, and the answer is for nobody.
    pub decide: Duration,
    /// Requests of filter and prioritize that reckon at one time; the others in work wait their turn.
    pub deciding: usize,
    /// Requests in work of filter and prioritize together; more are turned away.
    pub extender_requests: usize,
    pub bind_requests: usize,
    pub admission_requests: usize,
    /// Streams of one HTTP/2 connection.
    pub streams: u32,
    /// After the signal to stop: how long connections are still accepted, while /readyz says no.
    pub drain_delay: Duration,
    /// After that: how long requests in flight have to finish.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            first_request: Duration::from_secs(15),
            idle: Duration::from_secs(120),
            body: Duration::from_secs(10),
            stalled: Duration::from_secs(30),
            head_bytes: 32 << 10,
            extender_bytes: 64 << 20,
            bind_bytes: 64 << 10,
            // The API server itself takes no request above 3 MiB.
            admission_bytes: 4 << 20,
            admission_tree_bytes: 32 << 20,
            buffered_bytes: 256 << 20,
            admission_buffered_bytes: 64 << 20,
            connections: 1024,
            decide: Duration::from_secs(5),
            // One worker thread stays for everything else.
            deciding: std::thread::available_parallelism().map_or(1, |n| n.get().saturating_sub(1).max(1)),
            extender_requests: 64,
            bind_requests: 256,
            admission_requests: 256,
            streams: 256,
            drain_delay: Duration::ZERO,
            grace: Duration::from_secs(25),
        }
    }
}
