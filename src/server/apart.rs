//! Work that takes time by the bytes of a body, where those are many: nobody else waits for it.

use std::panic::resume_unwind;
use std::thread::{Builder, scope};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// Four times what kube-scheduler sends of 5,000 nodes, and a millisecond or so.
const MANY: usize = 1 << 20;

/// Done on a thread of its own that comes last, where the bytes are many: what else this thread has to do goes on on another
/// one meanwhile, and is not kept from the core. Else done here.
pub(super) fn apart<T: Send>(bytes: usize, work: impl FnOnce() -> T + Send) -> T {
    // A runtime of one thread has no other.
    if bytes <= MANY || Handle::current().runtime_flavor() != RuntimeFlavor::MultiThread {
        return work();
    }
    block_in_place(|| {
        let mut work = Some(work);
        let ended = scope(|all| {
            let one = || {
                come_last();
                work.take().map(|work| work())
            };
            Builder::new().spawn_scoped(all, one).map(|thread| thread.join())
        });
        match (ended, work) {
            (Ok(Ok(Some(done))), _) => done,
            (Ok(Err(panic)), _) => resume_unwind(panic),
            // Without a thread to be had it is still to be done.
            (_, Some(work)) => work(),
            (_, None) => unreachable!("work that began has ended, or its panic was passed on"),
        }
    })
}

/// This thread, from now on, only when nobody else wants the core: of a lower priority alone (`nice`) the kernel lets it run for its slice first, some
/// three milliseconds. For threads that end: without privileges nobody takes it back.
pub fn come_last() {
    #[cfg(target_os = "linux")]
    {
        use thread_priority::{
            NormalThreadSchedulePolicy::Idle, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
            thread_native_id,
        };
        let idle = ThreadSchedulePolicy::Normal(Idle);
        if let Err(error) = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle) {
            tracing::debug!(?error, "a thread that should come last has the priority of others");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MANY, apart};

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn many_bytes_are_looked_at_elsewhere() {
        let here = std::thread::current().id();
        let elsewhere = |bytes| apart(bytes, || std::thread::current().id()) != here;
        assert_eq!([MANY, MANY + 1].map(elsewhere), [false, true]);
        #[cfg(target_os = "linux")]
        {
            use thread_priority::{NormalThreadSchedulePolicy::Idle, ThreadSchedulePolicy, thread_schedule_policy};
            let policies = [MANY, MANY + 1].map(|bytes| apart(bytes, || thread_schedule_policy().ok()));
            let idle = Some(ThreadSchedulePolicy::Normal(Idle));
            assert_eq!(policies.map(|policy| policy == idle), [false, true]);
        }
        let panics = std::panic::catch_unwind(|| apart(MANY + 1, || -> () { panic!("of the work") }));
        assert!(panics.is_err());
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_does_it_itself() {
        assert_eq!(apart(MANY + 1, || 7), 7);
    }
}
