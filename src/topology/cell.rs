//! Links as text: the words of `nvidia-smi topo -m`, and two of ours (`NVS`, `XGMI`) for what that tool has no word for.

use std::fmt;

use super::Link;

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NvLink(n) => return write!(f, "NV{n}"),
            Self::NvSwitch => "NVS",
            Self::Xgmi => "XGMI",
            Self::Pix => "PIX",
            Self::Pxb => "PXB",
            Self::Phb => "PHB",
            Self::Node => "NODE",
            Self::Sys => "SYS",
            Self::Unknown => "?",
        })
    }
}

impl Link {
    /// What `Display` writes, and `SOC`, which drivers before 2017 printed for `SYS`. None: no word for a link, which
    /// is not the same as `?`. `NV0` is none: a link of no links says nothing.
    pub fn read(word: &str) -> Option<Self> {
        Some(match word {
            "NVS" => Self::NvSwitch,
            "XGMI" => Self::Xgmi,
            "PIX" => Self::Pix,
            "PXB" => Self::Pxb,
            "PHB" => Self::Phb,
            "NODE" => Self::Node,
            "SYS" | "SOC" => Self::Sys,
            "?" => Self::Unknown,
            _ => {
                let digits = word.strip_prefix("NV")?;
                let plain = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
                Self::NvLink(digits.parse().ok().filter(|_| plain)?)
            }
        })
    }

    /// What is believed when the two ends of a pair were asked: what both say, else nothing. A cell that could not be
    /// read, or that contradicts its mirror image, makes the pair unknown; neither half is worth more than the other.
    pub fn agreed(self, other: Self) -> Self {
        if self == other { self } else { Self::Unknown }
    }
}

#[cfg(test)]
mod tests {
    use super::Link;

    #[test]
    fn words_are_read_back() {
        let words = [
            Link::NvSwitch,
            Link::Xgmi,
            Link::Pix,
            Link::Pxb,
            Link::Phb,
            Link::Node,
            Link::Sys,
            Link::Unknown,
        ];
        for link in words.into_iter().chain((1..=255).map(Link::NvLink)) {
            assert_eq!(Link::read(&link.to_string()), Some(link));
        }
        for stranger in [
            "", "X", "NV", "NV0", "NV01", "NV+1", "NV256", "nv18", "NV18 ", "sys", "OK", "GNS", "N/A",
        ] {
            assert_eq!(Link::read(stranger), None, "{stranger:?}");
        }
    }
}
