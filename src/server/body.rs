//! Reads a request's body: never more than its route takes, never longer than it may take, and never more of
//! all bodies together than the server has room for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum BodyError {
    TooLarge,
    /// What is made of it would take so many bytes of memory.
    TooHeavy(usize),
    TooSlow,
    /// No room for it now.
    NoRoom,
    /// The caller stopped in the middle.
    Broken(String),
}

/// Bytes of all bodies held now, and how many there may be.
pub(super) struct Room {
    used: AtomicUsize,
    total: usize,
}

impl Room {
    pub(super) fn new(total: usize) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicUsize::new(0),
            total,
        })
    }
}

/// A part of the room, given back when dropped.
pub(super) struct Share {
    room: Arc<Room>,
    bytes: usize,
}

impl Share {
    /// None: there is no room for so much now.
    pub(super) fn take(room: &Arc<Room>, bytes: usize) -> Option<Self> {
        let mut share = Self {
            room: room.clone(),
            bytes: 0,
        };
        share.grow(bytes).then_some(share)
    }

    fn grow(&mut self, bytes: usize) -> bool {
        let before = self.room.used.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        before.saturating_add(bytes) <= self.room.total
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.room.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A body in one piece; its room is taken until it is dropped.
pub(super) struct Whole {
    bytes: Vec<u8>,
    _share: Share,
}

impl std::ops::Deref for Whole {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

pub(super) async fn read(body: Incoming, limit: usize, within: Duration, room: &Arc<Room>) -> Result<Whole, BodyError> {
    // What the head promises is judged before a byte is read.
    let promised = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if promised > limit {
        return Err(BodyError::TooLarge);
    }
    tokio::time::timeout(within, collect(body, promised, limit, room))
        .await
        .unwrap_or(Err(BodyError::TooSlow))
}

async fn collect(mut body: Incoming, promised: usize, limit: usize, room: &Arc<Room>) -> Result<Whole, BodyError> {
    // A promise is not yet a byte: of a big one only the first megabyte is believed.
    let mut bytes = Vec::with_capacity(promised.min(1 << 20));
    let mut share = Share {
        room: room.clone(),
        bytes: 0,
    };
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| BodyError::Broken(e.to_string()))?;
        // Trailers are of no interest.
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > limit {
            return Err(BodyError::TooLarge);
        }
        if !share.grow(data.len()) {
            return Err(BodyError::NoRoom);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Whole { bytes, _share: share })
}
