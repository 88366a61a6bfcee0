//! One simulated process: a runtime of one thread with a clock of its own, which runs only when it is told to, and only
//! up to a moment or to its next message. Dropping it is `kill -9`; not running it is a machine that hangs.

use std::cell::Cell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, advance, sleep_until};

use super::host::Out;

/// What a process sends into the world. Emptied by the host.
#[derive(Default)]
pub(crate) struct Outbox {
    queue: Mutex<Vec<Out>>,
    filled: Notify,
}

impl Outbox {
    pub(crate) fn push(&self, out: Out) {
        self.queue.lock().expect("not poisoned").push(out);
        self.filled.notify_one();
    }

    /// Asks and waits; None: the connection broke.
    pub(crate) async fn ask<T>(&self, message: impl FnOnce(oneshot::Sender<T>) -> Out) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.push(message(reply));
        answer.await.ok()
    }
}

pub(crate) struct Process {
    runtime: Option<Runtime>,
    pub(crate) outbox: Arc<Outbox>,
    born: Instant,
    /// Milliseconds of the host's clock at birth.
    offset: u64,
    /// Its own clock, in the host's milliseconds.
    now: Cell<u64>,
}

impl Process {
    pub(crate) fn new(now: u64) -> Self {
        let mut builder = Builder::new_current_thread();
        builder.enable_time().start_paused(true);
        // Which waiter of a watch channel is woken first, and which branch of a select is looked at first, is drawn by the
        // runtime; only with this can the draw be repeated.
        #[cfg(tokio_unstable)]
        builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&now.to_le_bytes()));
        let runtime = builder.build().expect("a runtime");
        let born = runtime.block_on(async { Instant::now() });
        Self {
            runtime: Some(runtime),
            outbox: Arc::default(),
            born,
            offset: now,
            now: Cell::new(now),
        }
    }

    pub(crate) fn block_on<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.as_ref().expect("lives until dropped").block_on(what)
    }

    pub(crate) fn now(&self) -> u64 {
        self.now.get()
    }

    /// Runs to that moment or to its next message, whichever is first.
    pub(crate) fn run_until(&self, moment: u64) {
        let until = self.born + Duration::from_millis(moment - self.offset);
        let passed = self.block_on(async {
            tokio::select! {
                biased;
                () = self.outbox.filled.notified() => {}
                () = sleep_until(until) => {}
            }
            Instant::now() - self.born
        });
        self.now
            .set(self.offset + u64::try_from(passed.as_millis()).expect("a short run"));
    }

    pub(crate) fn sent(&self) -> Vec<Out> {
        std::mem::take(&mut self.outbox.queue.lock().expect("not poisoned"))
    }

    /// After a freeze: all at once it is later, and everything that was to be done in between is due.
    pub(crate) fn wake(&self, now: u64) {
        let behind = now.saturating_sub(self.now());
        self.block_on(advance(Duration::from_millis(behind)));
        self.now.set(self.now().max(now));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
