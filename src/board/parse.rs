//! Text of the kernel's files → values. Pure: the text is given.
