"""What the hub lists: names, filters and the immutable view that every list, call and read is looked up in."""
