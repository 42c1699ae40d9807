"""What keeps an installation in order over months: pruning, backups, retired entities, readers."""
