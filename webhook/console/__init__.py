"""What people look at: the Quota API and the page."""
