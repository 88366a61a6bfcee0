//! A claim that several pods of a namespace share: its name says so, and how many pods were meant to. A name cannot be
//! changed, so nobody who may edit the object can raise the number; policy may hold it lower when a pod is placed.

use super::{Claim, NAME_HASH, Name, unhashed};

/// Annotation of a pod that takes a slot on the shared device of that name; label of the claim they share.
pub const SHARE: &str = "wattlane.dev/share";
/// Annotation of a shared claim: how many pods it was made for. For people; the name counts.
pub const SLOTS: &str = "wattlane.dev/slots";

const PREFIX: &str = "wl-share-";

/// What the name of a shared claim says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share<'a> {
    /// As pods name it.
    pub name: &'a str,
    /// 1 or more.
    pub slots: u32,
}

impl<'a> Share<'a> {
    /// `wl-share-NAME-xSLOTS-HASH`. None: a claim like any other.
    pub fn of_name(claim: &'a str) -> Option<Self> {
        let (name, slots) = unhashed(claim.strip_prefix(PREFIX)?)?.rsplit_once("-x")?;
        if name.is_empty() || slots.starts_with(['0', '+']) {
            return None;
        }
        Some(Self {
            name,
            slots: slots.parse().ok()?,
        })
    }

    /// The name of a claim with that content, whose hash is given in hexadecimal.
    pub fn claim_name(self, hash: &str) -> Name {
        let hash: String = hash.chars().take(NAME_HASH).collect();
        format!("{PREFIX}{}-x{}-{hash}", self.name, self.slots).into()
    }
}

impl Claim {
    /// Claims made for one pod are never shared, whatever their name.
    pub fn share(&self) -> Option<Share<'_>> {
        Share::of_name(&self.key.name).filter(|_| self.owner_pod.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_back_and_no_other_is() {
        let share = Share {
            name: "team-x2-a",
            slots: 4,
        };
        let name = share.claim_name("0123456789abcdef");
        assert_eq!(&*name, "wl-share-team-x2-a-x4-0123456789");
        assert_eq!(Share::of_name(&name), Some(share));
        for foreign in [
            "",
            "wl-share-",
            "wl-share-a-x4-012345678",
            "wl-share-a-x4-012345678g",
            "wl-share-a-x4-012345678A",
            "wl-share-a-x0-0123456789",
            "wl-share-a-x04-0123456789",
            "wl-share-a-x+4-0123456789",
            "wl-share-a-x99999999999-0123456789",
            "wl-share--x4-0123456789",
            "wl-gpu-nvidia-com-x4-0123456789",
            "a-wl-share-a-x4-0123456789",
        ] {
            assert_eq!(Share::of_name(foreign), None, "{foreign}");
        }
    }
}
