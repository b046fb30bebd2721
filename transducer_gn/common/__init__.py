"""What any program needs: errors, files, seeds, processes, units. Nothing here knows of speech but its units."""
