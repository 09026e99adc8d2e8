//! Splits a message into one share per Item, and reassembles the message from these shares.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use throughline_json::{Fields, InvalidDocument, Json, Name, Node, Object};

use crate::item::{Envelope, Item, ItemPosition};
use crate::name::ItemId;

/// The member of a stored Item that describes its share of the message.
pub(super) const KEY: &str = "cut";

/// Maximum number and length of the strings between the parts of a message. Strings such as a role,
/// a name or an id are short; a longer string may repeat content from a part.
const MAX_STRINGS: usize = 64;
const MAX_STRING_LEN: usize = 64;
/// Maximum length of such a string in JSON, with quotes and an escape for each byte.
const MAX_RAW_LEN: usize = 6 * MAX_STRING_LEN + 2;

/// An Item's share of its message.
pub(super) struct MessageShare<'i> {
    /// The number of Items in the message; `part` is the index of this Item.
    of: usize,
    part: usize,
    /// The id of the message's first Item, if it differs from the default.
    first: Option<&'i ItemId>,
    keeps: EnvelopeShare<'i>,
}

/// The part of the message text that an Item stores in addition to its own part.
enum EnvelopeShare<'i> {
    /// The text between the previous part and this part. For the last part, also the text after it.
    Glue { stands: usize, before: &'i str, after: &'i str },
    /// The whole message.
    Whole(&'i Envelope),
    /// Nothing, because the first Item stores the whole message.
    Nothing,
}

/// Computes each Item's share of its message; `None` for Items without a message.
pub(super) fn plan_shares(items: &[Item]) -> Vec<Option<MessageShare<'_>>> {
    let is_same = |one: &Item, other: &Item| match (envelope_of(one), envelope_of(other)) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    items.chunk_by(is_same).flat_map(plan_message).collect()
}

fn envelope_of(item: &Item) -> Option<&Arc<Envelope>> {
    item.native.as_ref()?.envelope.as_ref()
}

fn plan_message<'i>(items: &'i [Item]) -> Vec<Option<MessageShare<'i>>> {
    let Some((first, envelope)) = items.first().and_then(|item| Some((item, envelope_of(item)?)))
    else {
        return items.iter().map(|_| None).collect();
    };
    let unsplit_share =
        |part| if part == 0 { EnvelopeShare::Whole(envelope) } else { EnvelopeShare::Nothing };
    let keeps = match part_ranges(items, envelope) {
        Some(places) => glue_shares(envelope, &places),
        None => (0..items.len()).map(unsplit_share).collect(),
    };
    let cut = |((part, item), keeps): ((usize, &'_ Item), EnvelopeShare<'i>)| MessageShare {
        of: items.len(),
        part,
        first: (part > 0 && first.id != default_first_id(item)).then_some(&first.id),
        keeps,
    };
    items.iter().enumerate().zip(keeps).map(cut).map(Some).collect()
}

/// Returns the default id for the first Item in a message.
fn default_first_id(item: &Item) -> ItemId {
    ItemId::from_position("", ItemPosition { message: item.place.message, part: 0 })
}

/// Returns the text before each part, and the text after the last part. `places` are the byte
/// ranges of the parts.
fn glue_shares<'i>(envelope: &'i Envelope, places: &[Range<usize>]) -> Vec<EnvelopeShare<'i>> {
    let text = envelope.json.as_str();
    let mut keeps: Vec<(usize, EnvelopeShare<'i>)> = Vec::with_capacity(places.len());
    let mut order: Vec<(usize, &Range<usize>)> = places.iter().enumerate().collect();
    order.sort_by_key(|(_, place)| place.start);
    let mut end = 0;
    for (stands, (part, place)) in order.into_iter().enumerate() {
        let before = text.get(end..place.start).unwrap_or_default();
        end = place.end;
        let is_last = stands + 1 == places.len();
        let after = if is_last { text.get(end..).unwrap_or_default() } else { "" };
        keeps.push((part, EnvelopeShare::Glue { stands, before, after }));
    }
    keeps.sort_by_key(|(part, _)| *part);
    keeps.into_iter().map(|(_, keeps)| keeps).collect()
}

/// Returns the byte range of each Item's part in the message; `None` if the message does not
/// consist of these parts, or repeats their content between them.
fn part_ranges(items: &[Item], envelope: &Envelope) -> Option<Vec<Range<usize>>> {
    if items.len() != envelope.parts {
        return None;
    }
    let mut parts = UnplacedParts::of(items)?;
    let tree = envelope.json.tree();
    let mut places: Vec<Option<Range<usize>>> = vec![None; items.len()];
    let mut strings = MessageStrings::default();
    let mut end = 0;
    for node in tree.root().values() {
        let range = node.range();
        let is_inside = range.start < end;
        if !is_inside && let Some(part) = parts.take(node.raw()) {
            end = range.end;
            *places.get_mut(part)? = Some(range);
        }
        if items.len() > 1 {
            strings.add(node, node.range().start < end);
        }
    }
    let places: Option<Vec<_>> = places.into_iter().collect();
    places.filter(|_| strings.are_disjoint(items))
}

/// The parts whose position in the message is not known yet.
enum UnplacedParts<'i> {
    /// The parts of a short message, which are compared one by one; `None` once a part is placed.
    Few(Vec<Option<&'i [u8]>>),
    /// The parts by content, each with its indexes in order. A value can equal a part only if it
    /// has the same length, so other values are not hashed.
    Many { parts: HashMap<&'i [u8], VecDeque<usize>>, lengths: HashSet<usize> },
}

/// Maximum number of parts that are compared one by one.
const FEW_PARTS: usize = 16;

impl<'i> UnplacedParts<'i> {
    /// Returns the parts of these Items; `None` if an Item has no native part.
    fn of(items: &'i [Item]) -> Option<Self> {
        let mut texts = items.iter().map(|item| Some(&**item.native.as_ref()?.json.bytes()));
        if items.len() <= FEW_PARTS {
            return texts.map(|text| text.map(Some)).collect::<Option<_>>().map(Self::Few);
        }
        let mut parts: HashMap<&[u8], VecDeque<usize>> = HashMap::with_capacity(items.len());
        texts.try_fold(0, |part, text| {
            parts.entry(text?).or_default().push_back(part);
            Some(part + 1)
        })?;
        let lengths = parts.keys().map(|text| text.len()).collect();
        Some(Self::Many { parts, lengths })
    }

    /// Removes the first part that equals this text, and returns its index.
    fn take(&mut self, text: &[u8]) -> Option<usize> {
        match self {
            Self::Few(parts) => {
                let part = parts.iter().position(|part| *part == Some(text))?;
                *parts.get_mut(part)? = None;
                Some(part)
            }
            Self::Many { parts, lengths } if lengths.contains(&text.len()) => {
                parts.get_mut(text).and_then(VecDeque::pop_front)
            }
            Self::Many { .. } => None,
        }
    }
}

/// The strings in the parts of a message, and the strings between them.
#[derive(Default)]
struct MessageStrings<'t> {
    /// The strings in the parts that are short enough to be repeated between them.
    inside: HashSet<Cow<'t, str>>,
    between: Vec<Cow<'t, str>>,
}

impl<'t> MessageStrings<'t> {
    fn add(&mut self, node: Node<'t>, is_inside: bool) {
        if is_inside {
            if node.raw().len() <= MAX_RAW_LEN {
                self.inside.extend(node.text().filter(|text| text.len() <= MAX_STRING_LEN));
            }
        } else if self.between.len() <= MAX_STRINGS {
            self.between.extend(node.text().filter(|text| !text.is_empty()));
        }
    }

    /// Whether no string between the parts repeats content from a part.
    fn are_disjoint(&self, items: &[Item]) -> bool {
        let repeats = |text: &str| {
            let holds = |content: &str| content.len() > 1 && text.contains(content);
            text.len() > MAX_STRING_LEN
                || self.inside.contains(text)
                || items.iter().filter_map(Item::visible).any(holds)
        };
        self.between.len() <= MAX_STRINGS && !self.between.iter().any(|text| repeats(text))
    }
}

impl MessageShare<'_> {
    pub(super) fn holds_siblings(&self) -> bool {
        matches!(self.keeps, EnvelopeShare::Whole(envelope) if self.of > 1 || envelope.parts != 1)
    }

    pub(super) fn write(&self, out: &mut Object<'_>) {
        out.object(KEY, |out| {
            let unless = |default: usize, count: usize| (count != default).then_some(count as u64);
            out.maybe("of", unless(1, self.of)).maybe("part", unless(0, self.part));
            out.maybe("first", self.first.map(|first| &first.0));
            match &self.keeps {
                EnvelopeShare::Glue { stands, before, after } => {
                    out.maybe("stands", unless(self.part, *stands));
                    out.maybe("before", Some(*before).filter(|text| !text.is_empty()));
                    out.maybe("after", Some(*after).filter(|text| !text.is_empty()));
                }
                EnvelopeShare::Whole(envelope) => {
                    out.maybe("parts", unless(self.of, envelope.parts));
                    out.raw("whole", &envelope.json);
                }
                EnvelopeShare::Nothing => {}
            }
        });
    }
}

/// Whether a `cut` member contains the whole message and the message has several Items.
pub(super) fn is_whole_of_many(cut: Node<'_>) -> bool {
    let is_many = |key| cut.present(key).is_some_and(|count| count.u64() != Some(1));
    cut.get("whole").is_some() && (is_many("of") || is_many("parts"))
}

/// An Item's share of its message, read from a stored text.
pub(super) struct MessagePiece {
    of: usize,
    part: usize,
    first: ItemId,
    stands: usize,
    before: Name,
    after: Name,
    whole: Option<Envelope>,
}

/// Reads an Item's share of its message; `None` if the Item has no `cut` member.
pub(super) fn read(
    fields: &Fields<'_>,
    item: &Item,
) -> Result<Option<MessagePiece>, InvalidDocument> {
    if fields.present(KEY).is_some() && item.native.is_none() {
        return Err(fields.error(KEY, "requires a native part, but `to` and `by` are missing"));
    }
    let Some(fields) = fields.object(KEY)? else { return Ok(None) };
    let count = |key: &str| -> Result<Option<usize>, InvalidDocument> {
        Ok(fields.count(key)?.map(|count| usize::try_from(count).unwrap_or(usize::MAX)))
    };
    let (of, part) = (count("of")?.unwrap_or(1), count("part")?.unwrap_or(0));
    let usual = || if part == 0 { item.id.clone() } else { default_first_id(item) };
    let parts = count("parts")?.unwrap_or(of);
    Ok(Some(MessagePiece {
        of,
        part,
        first: fields.text("first")?.map_or_else(usual, ItemId),
        stands: count("stands")?.unwrap_or(part),
        before: fields.text("before")?.unwrap_or_default(),
        after: fields.text("after")?.unwrap_or_default(),
        whole: fields.get("whole").map(|json| Envelope { json: json.json(), parts }),
    }))
}

/// Reassembles messages while their Items are read.
#[derive(Default)]
pub(super) struct MessageAssembler {
    /// The received shares of the current message; empty if a share is missing.
    pieces: Vec<MessagePiece>,
}

impl MessageAssembler {
    /// Drops the current message, which cannot be completed because an Item is missing.
    pub(super) fn reset(&mut self) {
        self.pieces.clear();
    }

    /// Adds the share of the last Item in `items`. When the message is complete, sets the envelope
    /// of all its Items.
    pub(super) fn push(
        &mut self,
        piece: Option<MessagePiece>,
        items: &mut [Item],
        fields: &Fields<'_>,
    ) -> Result<(), InvalidDocument> {
        if piece.as_ref().is_none_or(|piece| piece.part == 0) {
            self.reset();
        }
        let continues = |piece: &MessagePiece| {
            let first = self.pieces.first();
            piece.part == self.pieces.len()
                && first.is_none_or(|first| first.first == piece.first && first.of == piece.of)
        };
        let Some(piece) = piece.filter(continues) else {
            self.reset();
            return Ok(());
        };
        let of = piece.of;
        self.pieces.push(piece);
        if self.pieces.len() < of {
            return Ok(());
        }
        let start = items.len().saturating_sub(of);
        let items = items.get_mut(start..).unwrap_or_default();
        let problem = "does not form a message with the parts before it";
        let envelope = self.envelope(items).ok_or_else(|| fields.error(KEY, problem))?;
        let envelope = Arc::new(envelope);
        for native in items.iter_mut().filter_map(|item| item.native.as_mut()) {
            native.envelope = Some(Arc::clone(&envelope));
        }
        self.reset();
        Ok(())
    }

    fn envelope(&mut self, items: &[Item]) -> Option<Envelope> {
        if let Some(whole) = self.pieces.first_mut()?.whole.take() {
            return Some(whole);
        }
        let parts = self.pieces.len();
        let natives = items.iter().filter_map(|item| item.native.as_ref());
        let mut joined: Vec<(&MessagePiece, &Json)> =
            self.pieces.iter().zip(natives.map(|native| &native.json)).collect();
        if let [(piece, json)] = joined[..]
            && piece.before.is_empty()
            && piece.after.is_empty()
        {
            return Some(Envelope { json: json.clone(), parts });
        }
        joined.sort_by_key(|(piece, _)| piece.stands);
        let size = |(piece, json): &(&MessagePiece, &Json)| {
            piece.before.len() + json.bytes().len() + piece.after.len()
        };
        let mut text = Vec::with_capacity(joined.iter().map(size).sum());
        for (piece, json) in joined {
            text.extend_from_slice(piece.before.as_bytes());
            text.extend_from_slice(json.bytes());
            text.extend_from_slice(piece.after.as_bytes());
        }
        Json::parse(Bytes::from(text)).ok().map(|json| Envelope { json, parts })
    }
}
