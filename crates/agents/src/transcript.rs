//! What an agent writes down of a conversation, read as lines and as messages.
