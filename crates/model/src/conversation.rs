//! Conversations: a chain of messages, each with the hash of the one before it.
//!
//! The last message identifies the whole conversation. Appending a message to a thousand stores that message and 40 bytes;
//! conversations share their common beginning; equal conversations have equal tips, whatever their history; and the point
//! where two diverge is found by walking back from both tips no further than that.
//!
//! A [`crate::list`] would do the same with random access, but appending one item to a list of thousands writes a leaf of
//! on average 64 hashes, which is more than most messages have. Conversations are appended to all the time and read
//! from the end.
//!
//! The content of a message is opaque: one line of the agent's own record, as JSON text.

use minicbor::{Decode, Encode};

use crate::hash::{Hash, ObjectKind};
use crate::object::{ObjectError, ObjectSink, ObjectSource};

/// One message.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(array)]
pub struct ConversationMessage {
    /// Hash of the message before it; `None` for the first.
    #[n(0)]
    pub previous: Option<Hash>,
    /// The number of messages up to and including this one.
    #[n(1)]
    pub count: u64,
    /// The message as the agent recorded it.
    #[n(2)]
    pub text: String,
}

impl ConversationMessage {
    /// Canonical bytes.
    pub fn encode_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.text.len() + 48);
        // Writing into a Vec cannot fail.
        let _ = minicbor::encode(self, &mut bytes);
        bytes
    }

    /// Reads the bytes of the message stored under `hash`.
    pub fn decode_bytes(hash: Hash, bytes: &[u8]) -> Result<Self, ObjectError> {
        minicbor::decode(bytes).map_err(|error| ObjectError::corrupt(ObjectKind::Message, hash, error))
    }

    /// Reads the message stored under `hash`.
    pub fn load(source: &(impl ObjectSource + ?Sized), hash: Hash) -> Result<Self, ObjectError> {
        Self::decode_bytes(hash, &source.read(ObjectKind::Message, hash)?)
    }
}

/// The hash of the message before the one with these bytes; `None` if it is the first, or is not a message.
pub fn previous(bytes: &[u8]) -> Option<Hash> {
    minicbor::decode::<ConversationMessage>(bytes).ok()?.previous
}

/// The number of messages in the conversation that ends in `tip`.
pub fn len(source: &(impl ObjectSource + ?Sized), tip: Option<Hash>) -> Result<u64, ObjectError> {
    tip.map_or(Ok(0), |tip| ConversationMessage::load(source, tip).map(|message| message.count))
}

/// Appends messages to the conversation that ends in `tip` (and has `count` messages) and returns the new tip.
pub fn append<'t>(
    sink: &(impl ObjectSink + ?Sized),
    tip: Option<Hash>,
    count: u64,
    texts: impl IntoIterator<Item = &'t str>,
) -> Result<Option<Hash>, ObjectError> {
    let (mut tip, mut count) = (tip, count);
    for text in texts {
        count += 1;
        let message = ConversationMessage { previous: tip, count, text: text.to_string() };
        tip = Some(sink.write(ObjectKind::Message, &message.encode_bytes(), None)?);
    }
    Ok(tip)
}

/// The last `limit` messages, oldest first, each with its hash.
pub fn tail(
    source: &(impl ObjectSource + ?Sized),
    tip: Option<Hash>,
    limit: usize,
) -> Result<Vec<(Hash, ConversationMessage)>, ObjectError> {
    let mut messages: Vec<(Hash, ConversationMessage)> = Vec::new();
    let Some(tip) = tip.filter(|_| limit > 0) else { return Ok(messages) };
    source.read_chain(ObjectKind::Message, tip, &mut |hash, bytes| {
        let message = ConversationMessage::decode_bytes(hash, &bytes)?;
        // Counts decrease by one from message to message, so that no chain can be endless.
        let expected = messages.last().map(|(_, later)| later.count - 1);
        if message.count == 0
            || expected.is_some_and(|count| count != message.count)
            || message.previous.is_none() != (message.count == 1)
        {
            return Err(ObjectError::corrupt(ObjectKind::Message, hash, "it is not where it should be"));
        }
        let previous = message.previous;
        messages.push((hash, message));
        Ok(previous.filter(|_| messages.len() < limit))
    })?;
    messages.reverse();
    Ok(messages)
}

/// Calls `each` with every message, newest first, until it returns `false`. Messages are not kept in memory.
pub fn for_each_newest_first(
    source: &(impl ObjectSource + ?Sized),
    tip: Option<Hash>,
    each: &mut dyn FnMut(ConversationMessage) -> bool,
) -> Result<(), ObjectError> {
    let Some(tip) = tip else { return Ok(()) };
    let mut expected = None;
    source.read_chain(ObjectKind::Message, tip, &mut |hash, bytes| {
        let message = ConversationMessage::decode_bytes(hash, &bytes)?;
        if message.count == 0
            || expected.is_some_and(|count| count != message.count)
            || message.previous.is_none() != (message.count == 1)
        {
            return Err(ObjectError::corrupt(ObjectKind::Message, hash, "it is not where it should be"));
        }
        expected = Some(message.count - 1);
        let previous = message.previous;
        Ok(if each(message) { previous } else { None })
    })
}

/// All messages, oldest first.
pub fn texts(source: &(impl ObjectSource + ?Sized), tip: Option<Hash>) -> Result<Vec<String>, ObjectError> {
    Ok(tail(source, tip, usize::MAX)?.into_iter().map(|(_, message)| message.text).collect())
}

/// The tip of the conversation's first `keep` messages; the same tip if it has no more.
pub fn shorten(
    source: &(impl ObjectSource + ?Sized),
    tip: Option<Hash>,
    keep: u64,
) -> Result<Option<Hash>, ObjectError> {
    let mut shortened = tip;
    while let Some(hash) = shortened {
        let message = ConversationMessage::load(source, hash)?;
        if message.count <= keep {
            break;
        }
        shortened = message.previous;
    }
    Ok(shortened)
}

/// The number of messages that two conversations share from the beginning.
pub fn shared(
    source: &(impl ObjectSource + ?Sized),
    a: Option<Hash>,
    b: Option<Hash>,
) -> Result<u64, ObjectError> {
    let (mut a, mut b) = (a, b);
    loop {
        let (Some(hash_a), Some(hash_b)) = (a, b) else { return Ok(0) };
        if hash_a == hash_b {
            return len(source, Some(hash_a));
        }
        let (hash_a, hash_b) =
            (ConversationMessage::load(source, hash_a)?, ConversationMessage::load(source, hash_b)?);
        if hash_a.count >= hash_b.count {
            a = hash_a.previous;
        }
        if hash_b.count >= hash_a.count {
            b = hash_b.previous;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::tests::Memory;

    #[test]
    fn equal_conversations_have_equal_tips_and_share_their_beginning() {
        let objects = Memory::default();
        let a = append(&objects, None, 0, ["one", "two", "three"]).unwrap();
        let b = append(&objects, None, 0, ["one"]).unwrap();
        let b = append(&objects, b, 1, ["two"]).unwrap();
        assert_eq!(shorten(&objects, a, 2).unwrap(), b);
        let b = append(&objects, b, 2, ["other", "more"]).unwrap();
        assert_eq!(shared(&objects, a, b).unwrap(), 2);
        assert_eq!(texts(&objects, b).unwrap(), ["one", "two", "other", "more"]);
        assert_eq!(shared(&objects, a, None).unwrap(), 0);
        let tail = tail(&objects, a, 2).unwrap();
        assert_eq!(
            tail.iter().map(|(_, message)| message.text.as_str()).collect::<Vec<_>>(),
            ["two", "three"]
        );
    }

    #[test]
    fn messages_are_visited_from_the_newest_until_it_is_enough() {
        let objects = Memory::default();
        let tip = append(&objects, None, 0, ["one", "two", "three"]).unwrap();
        let mut seen = Vec::new();
        for_each_newest_first(&objects, tip, &mut |message| {
            seen.push((message.count, message.text));
            seen.len() < 2
        })
        .unwrap();
        assert_eq!(seen, [(3, "three".to_owned()), (2, "two".to_owned())]);
    }

    #[test]
    fn a_chain_that_does_not_count_is_refused() {
        let objects = Memory::default();
        let bytes = ConversationMessage { previous: None, count: 7, text: "lonely".into() }.encode_bytes();
        let hash = objects.write(ObjectKind::Message, &bytes, None).unwrap();
        assert!(matches!(texts(&objects, Some(hash)), Err(ObjectError::Corrupt { .. })));
    }
}
