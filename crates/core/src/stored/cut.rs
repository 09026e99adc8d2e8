//! Messages, cut into what belongs to each of their Items, and put together again.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::document::{Fields, InvalidDocument};
use crate::item::{Envelope, Item, Place};
use crate::json::{Json, Node, Object};
use crate::name::{ItemId, Name};

/// The member that tells how an Item was cut from its message.
pub(super) const KEY: &str = "cut";

/// How many strings may stand between the parts of a message, and how long each may be. A message has a role, a name, an id;
/// what is longer may be what a part says.
const MOST_STRINGS: usize = 64;
const LONGEST_STRING: usize = 64;

/// How an Item was cut from its message.
pub(super) struct Cut<'i> {
    /// How many Items were, and which of them this is.
    of: usize,
    part: usize,
    /// The first of them, where that does not go without saying.
    first: Option<&'i ItemId>,
    keeps: Keeps<'i>,
}

/// What an Item keeps of its message, besides its own part.
enum Keeps<'i> {
    /// What stands between the part before it and its own, and what stands behind the last.
    Glue { stands: usize, before: &'i str, after: &'i str },
    /// All of it.
    Whole(&'i Envelope),
    /// Nothing, because the first Item keeps all of it.
    Nothing,
}

/// How each of the Items is to be cut from its message, if it came in one.
pub(super) fn plan(items: &[Item]) -> Vec<Option<Cut<'_>>> {
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

fn plan_message<'i>(items: &'i [Item]) -> Vec<Option<Cut<'i>>> {
    let Some((first, envelope)) = items.first().and_then(|item| Some((item, envelope_of(item)?)))
    else {
        return items.iter().map(|_| None).collect();
    };
    let whole = |part| if part == 0 { Keeps::Whole(envelope) } else { Keeps::Nothing };
    let keeps = match places_of(items, envelope) {
        Some(places) => glue(envelope, &places),
        None => (0..items.len()).map(whole).collect(),
    };
    let cut = |((part, item), keeps): ((usize, &'_ Item), Keeps<'i>)| Cut {
        of: items.len(),
        part,
        first: (part > 0 && first.id != first_of(item)).then_some(&first.id),
        keeps,
    };
    items.iter().enumerate().zip(keeps).map(cut).map(Some).collect()
}

/// The id that the first Item of a message usually has.
fn first_of(item: &Item) -> ItemId {
    ItemId::at("", Place { message: item.place.message, part: 0 })
}

/// What each of the parts that stand at these places keeps.
fn glue<'i>(envelope: &'i Envelope, places: &[Range<usize>]) -> Vec<Keeps<'i>> {
    let text = envelope.json.as_str();
    let mut keeps: Vec<(usize, Keeps<'i>)> = Vec::with_capacity(places.len());
    let mut order: Vec<(usize, &Range<usize>)> = places.iter().enumerate().collect();
    order.sort_by_key(|(_, place)| place.start);
    let mut end = 0;
    for (stands, (part, place)) in order.into_iter().enumerate() {
        let before = text.get(end..place.start).unwrap_or_default();
        end = place.end;
        let is_last = stands + 1 == places.len();
        let after = if is_last { text.get(end..).unwrap_or_default() } else { "" };
        keeps.push((part, Keeps::Glue { stands, before, after }));
    }
    keeps.sort_by_key(|(part, _)| *part);
    keeps.into_iter().map(|(_, keeps)| keeps).collect()
}

/// Where each Item's part stands in the message; nothing where it is not made of them, or where something that they say stands
/// between them as well.
fn places_of(items: &[Item], envelope: &Envelope) -> Option<Vec<Range<usize>>> {
    if items.len() != envelope.parts {
        return None;
    }
    let mut waiting: HashMap<&[u8], VecDeque<usize>> = HashMap::new();
    for (part, item) in items.iter().enumerate() {
        waiting.entry(item.native.as_ref()?.json.bytes()).or_default().push_back(part);
    }
    // Only a value of the length of a part is worth a closer look.
    let lengths: HashSet<usize> = waiting.keys().map(|json| json.len()).collect();
    let tree = envelope.json.tree();
    let mut places: Vec<Option<Range<usize>>> = vec![None; items.len()];
    let mut strings = Strings::default();
    let mut end = 0;
    for node in tree.root().values() {
        let range = node.range();
        let is_inside = range.start < end;
        if !is_inside
            && lengths.contains(&range.len())
            && let Some(part) = waiting.get_mut(node.raw()).and_then(VecDeque::pop_front)
        {
            end = range.end;
            *places.get_mut(part)? = Some(range);
        }
        if items.len() > 1 {
            strings.note(node, node.range().start < end);
        }
    }
    let places: Option<Vec<_>> = places.into_iter().collect();
    places.filter(|_| strings.are_apart(items))
}

/// What stands in the parts of a message, and what stands between them.
#[derive(Default)]
struct Strings<'t> {
    inside: HashSet<Cow<'t, str>>,
    between: Vec<Cow<'t, str>>,
}

impl<'t> Strings<'t> {
    fn note(&mut self, node: Node<'t>, is_inside: bool) {
        if is_inside {
            self.inside.extend(node.text());
        } else if self.between.len() <= MOST_STRINGS {
            self.between.extend(node.text().filter(|text| !text.is_empty()));
        }
    }

    /// Whether nothing between the parts may be something that a part says.
    fn are_apart(&self, items: &[Item]) -> bool {
        let repeats = |text: &str| {
            let holds = |said: &str| said.len() > 1 && text.contains(said);
            text.len() > LONGEST_STRING
                || self.inside.contains(text)
                || items.iter().filter_map(Item::visible).any(holds)
        };
        self.between.len() <= MOST_STRINGS && !self.between.iter().any(|text| repeats(text))
    }
}

impl Cut<'_> {
    pub(super) fn holds_siblings(&self) -> bool {
        matches!(self.keeps, Keeps::Whole(envelope) if self.of > 1 || envelope.parts != 1)
    }

    pub(super) fn write(&self, out: &mut Object<'_>) {
        out.object(KEY, |out| {
            if self.of != 1 {
                out.number("of", self.of as u64);
            }
            if self.part != 0 {
                out.number("part", self.part as u64);
            }
            out.maybe_string("first", self.first.map(|first| &*first.0));
            match &self.keeps {
                Keeps::Glue { stands, before, after } => {
                    if *stands != self.part {
                        out.number("stands", *stands as u64);
                    }
                    let said = |text: &'_ str| !text.is_empty();
                    out.maybe_string("before", Some(*before).filter(|text| said(text)));
                    out.maybe_string("after", Some(*after).filter(|text| said(text)));
                }
                Keeps::Whole(envelope) => {
                    if envelope.parts != self.of {
                        out.number("parts", envelope.parts as u64);
                    }
                    out.raw("whole", &envelope.json);
                }
                Keeps::Nothing => {}
            }
        });
    }
}

/// Whether a text keeps a message that more Items were cut from.
pub(super) fn is_whole_of_many(cut: Node<'_>) -> bool {
    let is_many = |key| cut.present(key).is_some_and(|count| count.u64() != Some(1));
    cut.get("whole").is_some() && (is_many("of") || is_many("parts"))
}

/// One Item's piece of its message.
pub(super) struct Piece {
    of: usize,
    part: usize,
    first: ItemId,
    stands: usize,
    before: Name,
    after: Name,
    whole: Option<Envelope>,
}

/// The piece of its message that an Item's text keeps.
pub(super) fn read(fields: &Fields<'_>, item: &Item) -> Result<Option<Piece>, InvalidDocument> {
    let Some(node) = fields.present(KEY) else { return Ok(None) };
    if item.native.is_none() {
        return Err(fields.error(KEY, "demands the part that was cut: `json` is missing"));
    }
    let fields = Fields::of(node, fields.path(KEY))?;
    let count = |key: &str| -> Result<Option<usize>, InvalidDocument> {
        Ok(fields.count(key)?.map(|count| usize::try_from(count).unwrap_or(usize::MAX)))
    };
    let (of, part) = (count("of")?.unwrap_or(1), count("part")?.unwrap_or(0));
    let usual = || if part == 0 { item.id.clone() } else { first_of(item) };
    let parts = count("parts")?.unwrap_or(of);
    Ok(Some(Piece {
        of,
        part,
        first: fields.text("first")?.map_or_else(usual, ItemId),
        stands: count("stands")?.unwrap_or(part),
        before: fields.text("before")?.unwrap_or_default(),
        after: fields.text("after")?.unwrap_or_default(),
        whole: fields.given("whole").map(|json| Envelope { json: json.json(), parts }),
    }))
}

/// Puts messages together while their Items are read.
#[derive(Default)]
pub(super) struct Messages {
    /// The pieces of the message that the last Items were cut from, as long as none is missing.
    pieces: Vec<Piece>,
}

impl Messages {
    /// Something is missing here.
    pub(super) fn interrupt(&mut self) {
        self.pieces.clear();
    }

    /// Notes the piece of the Item that was read last, and hands out the message when it is complete.
    pub(super) fn push(
        &mut self,
        piece: Option<Piece>,
        items: &mut [Item],
        fields: &Fields<'_>,
    ) -> Result<(), InvalidDocument> {
        let Some(piece) = piece else {
            self.interrupt();
            return Ok(());
        };
        if piece.part == 0 {
            self.interrupt();
        }
        let goes_on = piece.part == self.pieces.len()
            && self
                .pieces
                .first()
                .is_none_or(|first| first.first == piece.first && first.of == piece.of);
        if !goes_on {
            self.interrupt();
            return Ok(());
        }
        let of = piece.of;
        self.pieces.push(piece);
        if self.pieces.len() < of {
            return Ok(());
        }
        let start = items.len().saturating_sub(of);
        let items = items.get_mut(start..).unwrap_or_default();
        let envelope = self
            .envelope(items)
            .ok_or_else(|| fields.error(KEY, "does not make a message with the parts before it"))?;
        let envelope = Arc::new(envelope);
        for native in items.iter_mut().filter_map(|item| item.native.as_mut()) {
            native.envelope = Some(Arc::clone(&envelope));
        }
        self.interrupt();
        Ok(())
    }

    fn envelope(&mut self, items: &[Item]) -> Option<Envelope> {
        if let Some(whole) = self.pieces.first_mut()?.whole.take() {
            return Some(whole);
        }
        let parts = self.pieces.len();
        let natives = items.iter().filter_map(|item| item.native.as_ref());
        let mut joined: Vec<(&Piece, &Json)> =
            self.pieces.iter().zip(natives.map(|native| &native.json)).collect();
        if let [(piece, json)] = joined[..]
            && piece.before.is_empty()
            && piece.after.is_empty()
        {
            return Some(Envelope { json: json.clone(), parts });
        }
        joined.sort_by_key(|(piece, _)| piece.stands);
        let size = |(piece, json): &(&Piece, &Json)| {
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
