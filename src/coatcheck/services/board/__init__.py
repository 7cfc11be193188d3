"""The board as a process: bulletins and letters for everybody to see."""
